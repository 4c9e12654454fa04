import { enableCompileCache } from "node:module";
import { fileURLToPath } from "node:url";

/** Folder of the compiled modules. */
export const COMPILE_CACHE = fileURLToPath(new URL("../node_modules/.cache/compile", import.meta.url));

// `npm start` loads this before anything else. Stripping the types from TypeScript takes 20 MiB in each thread, and time;
// with the cache it is done once, and not when the service starts. It is JavaScript because it needs no stripping itself.
enableCompileCache(COMPILE_CACHE);
