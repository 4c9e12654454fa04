import { tmpdir } from "node:os";
import { resolve } from "node:path";
import { parseArgs } from "node:util";

/** Settings of a run. */
export interface Settings {
	/** Prefixes of the names of the benchmarks to run; empty for all. */
	readonly names: readonly string[];
	/** Number of pairs of measurements for each ratio. */
	readonly rounds: number;
	/** Duration of one measurement. */
	readonly milliseconds: number;
	/** Maximum number of requests under way at a time. */
	readonly concurrency: number;
	/** Folder for processor profiles of the service. */
	readonly profile: string | undefined;
	/** Folder in which databases are created. */
	readonly folder: string;
	readonly json: boolean;
	/** Checkout of the project whose service is measured instead of the yardsticks. */
	readonly against: string | undefined;
}

export const USAGE = `Usage: npm run bench -- [options] [name or its beginning...]

  --rounds N       pairs of measurements for each ratio (5)
  --seconds S      length of one measurement (2)
  --concurrency N  small requests under way at a time (256); of large ones at most 32
  --folder DIR     where databases are made, on a disk (${tmpdir()})
  --profile DIR    write processor profiles of the service to DIR and show where its time goes
  --json           print the figures as JSON
  --against DIR    measure the ingest of DIR, another checkout that is ready for npm start, in place of the yardsticks
  --help           print this
`;

/** @throws Error when the arguments are not valid */
export function readSettings(args: readonly string[]): Settings {
	const { values, positionals } = parseArgs({
		args: [...args],
		allowPositionals: true,
		options: {
			rounds: { type: "string", default: "5" },
			seconds: { type: "string", default: "2" },
			concurrency: { type: "string", default: "256" },
			folder: { type: "string", default: tmpdir() },
			profile: { type: "string" },
			json: { type: "boolean", default: false },
			against: { type: "string" },
		},
	});
	return {
		names: positionals,
		rounds: numberOf("rounds", values.rounds, 1, 100),
		milliseconds: numberOf("seconds", values.seconds, 0.1, 600) * 1000,
		concurrency: numberOf("concurrency", values.concurrency, 1, 1000),
		profile: values.profile,
		folder: values.folder,
		json: values.json,
		against: values.against && resolve(values.against),
	};
}

function numberOf(name: string, text: string, least: number, most: number): number {
	const value = Number(text);
	if (!(value >= least && value <= most)) throw new Error(`--${name} must be a number from ${least} to ${most}`);
	return value;
}
