import { join } from "node:path";

/** Folder of the project, in which npm runs its scripts. */
export const ROOT = join(import.meta.dirname, "..", "..");

/** Arguments for node with which `npm start` runs the program. */
export const START_ARGUMENTS: readonly string[] = ["dist/main.js"];
