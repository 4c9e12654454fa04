/**
 * PostgreSQL with Citus on this machine: `npm run citus -- start FOLDER` runs a cluster until Ctrl-C, `npm run citus -- test`
 * runs the tests of the store on one, and `npm run citus -- test-service` those of the service. Builds Citus the first time:
 * see test/store/citus/build.ts. The servers are for trials: they do not wait for the disk.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { citusPrograms } from "../test/store/citus/build.ts";
import { Cluster } from "../test/store/citus/cluster.ts";

const USAGE = `Usage: npm run citus -- COMMAND

  build                          build PostgreSQL with Citus, and print the folder of its programs
  start FOLDER [--workers N]     run a coordinator and N workers (default: 2) in a new folder until Ctrl-C
  test [ARGUMENT…]               run the tests of the store on Citus; the arguments are those of vitest
  test-service FILE…             run tests that run with each engine, such as test/e2e/budgets.long.test.ts, on Citus

CITUS_SOURCE names the archive of the source of Citus 13.0.5.
`;

async function start(folder: string, workers: number): Promise<void> {
	await using cluster = await Cluster.start(resolve(folder), workers);
	process.stdout.write(`The coordinator is ready. Distribute the tables, and start the service:

  export DATABASE_URL='${cluster.coordinator.url("?sslmode=disable")}'
  npm start -- migrate --distribute
  npm start

`);
	await Promise.race([once(process, "SIGINT"), once(process, "SIGTERM")]);
}

async function test(args: readonly string[], environment: Readonly<Record<string, string>> = {}): Promise<void> {
	// It says why there is no Citus before the tests begin.
	await citusPrograms();
	const vitest = spawn("vitest", ["run", ...args], { stdio: "inherit", env: { ...process.env, ...environment } });
	const [code] = await once(vitest, "close");
	process.exitCode = Number(code ?? 1);
}

const [command, ...args] = process.argv.slice(2);
try {
	if (command === "build") process.stdout.write(`${await citusPrograms()}\n`);
	else if (command === "test") await test(["test/store/citus", ...args]);
	else if (command === "test-service") await test(args, { TEST_CITUS: "1" });
	else if (command === "start") {
		const { values, positionals } = parseArgs({
			args,
			options: { workers: { type: "string", default: "2" } },
			allowPositionals: true,
		});
		const [folder] = positionals;
		if (folder === undefined || !/^[1-9]\d?$/.test(values.workers)) throw new Error(USAGE);
		await start(folder, Number(values.workers));
	} else throw new Error(USAGE);
} catch (error) {
	process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
	process.exitCode = 1;
}
