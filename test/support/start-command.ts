import { join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };

/** Folder of the project, in which npm runs its scripts. */
export const ROOT = join(import.meta.dirname, "..", "..");

/** What `npm start` gives to node: V8 options and the built program. */
export const START_ARGUMENTS: readonly string[] = packageJson.scripts.start.replace(/^exec node /, "").split(" ");
