import { fileURLToPath } from "node:url";
import packageJson from "../package.json" with { type: "json" };

/** Folder in which `npm start` runs. */
export const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** What `npm start` gives to node. */
export const START_ARGUMENTS: readonly string[] = packageJson.scripts.start.replace(/^node /, "").split(" ");
