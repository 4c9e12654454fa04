#!/usr/bin/env node
// The process entry. It imports the rest of the program only after this check, because older releases of Node.js cannot
// parse it.

/** Oldest major version of Node.js that has everything that the program uses. */
const OLDEST_NODE = 26;

const { node } = process.versions;
if (Number.parseInt(node, 10) < OLDEST_NODE) {
	process.stderr.write(
		`The program needs Node.js ${OLDEST_NODE}, and this is Node.js ${node}; npx adds it with -p node@${OLDEST_NODE}\n`,
	);
	process.exit(1);
}
// Before the rest of the program is loaded, which the new process loads again.
if ((process.argv[2] ?? "serve") === "serve") (await import("./process-options.ts")).ensureOptions();
const { runProgram } = await import("./commands/program.ts");
await runProgram(process.argv.slice(2), process.env);
