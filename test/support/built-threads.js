// Preloaded into the processes of the tests (vitest.config.ts) and into their threads, which inherit that.
import { registerHooks } from "node:module";

const ROOT = new URL("../../", import.meta.url).href;
const THREADS = ["store/sqlite/writer", "store/sqlite/reader", "intake/intake-worker"];
const built = new Map(THREADS.map((name) => [`${ROOT}src/${name}.ts`, `${ROOT}dist/${name}.js`]));

// A thread of a test begins with its built module, which starts in a third of the time that the sources take.
registerHooks({
	resolve: (specifier, context, next) => next(built.get(specifier) ?? specifier, context),
});
