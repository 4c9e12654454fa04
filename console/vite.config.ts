import { join } from "node:path";
import { defineConfig } from "vite";

export default defineConfig({
	root: import.meta.dirname,
	// Relative addresses, because the service may serve the console below BASE_PATH.
	base: "./",
	oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
	build: {
		outDir: join(import.meta.dirname, "..", "dist", "console"),
		emptyOutDir: true,
		target: "es2023",
		// The Content-Security-Policy allows images and fonts from the service only, and no inline style sheets.
		assetsInlineLimit: 0,
		modulePreload: { polyfill: false },
		rolldownOptions: {
			output: {
				codeSplitting: {
					groups: [
						// The shared worker loads these two files only, so nothing in them may need a page.
						{ name: "protocol", test: /node_modules.@?(bufbuild|connectrpc)|.gen.conversations/, priority: 2 },
						{ name: "shared-worker", test: /service.(hub|shared-worker)\.ts$/, priority: 1 },
					],
				},
			},
		},
	},
});
