import { enableCompileCache } from "node:module";
import { fileURLToPath } from "node:url";

// `npm start` loads this before anything else. Stripping the types from TypeScript takes 20 MiB in each thread, and time;
// what the cache holds needs none. It is JavaScript because it is loaded before there is a cache. NODE_COMPILE_CACHE, if
// it is set, names another folder, and NODE_DISABLE_COMPILE_CACHE does without.
enableCompileCache(fileURLToPath(new URL("../node_modules/.cache/compile", import.meta.url)));
