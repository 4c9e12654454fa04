import { badInputs } from "./bad-inputs.ts";
import { kills } from "./kills.ts";
import type { Run } from "./run.ts";

/** All runs, in the order in which they are made. */
export const RUNS: readonly Run[] = [kills, badInputs];
