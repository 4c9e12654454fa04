import type { Random } from "../support/random.ts";
import type { Report } from "./report.ts";

/** One kind of trouble that the real program is put through. */
export interface Run {
	readonly name: string;
	readonly about: string;
	/** What `count` counts. */
	readonly counted: string;
	/** How many in the long form, and in the short one that the tests run. */
	readonly long: number;
	readonly short: number;
	/** Puts the program through it. What it must not do and did is told to the report. */
	run(count: number, random: Random, report: Report): Promise<void>;
}
