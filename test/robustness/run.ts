import type { Random } from "../support/random.ts";
import type { Report } from "./report.ts";

/** A kind of disturbance to which the real program is exposed. */
export interface Run {
	readonly name: string;
	readonly about: string;
	/** Unit of `count`. */
	readonly counted: string;
	/** Count of the long form, and of the short form that the tests use. */
	readonly long: number;
	readonly short: number;
	/** Executes the run. Violations of the program are recorded in the report. */
	run(count: number, random: Random, report: Report): Promise<void>;
}
