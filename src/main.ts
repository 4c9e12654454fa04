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

/** V8 options of the service. docs/architecture.md (Threads) says what they and the allocator's settings bring. */
const V8_OPTIONS = [
	"--no-allocation-site-pretenuring",
	"--heap-growing-percent=100",
	"--invocation-count-for-maglev=100",
	"--invocation-count-for-turbofan=500",
];
/** Settings of glibc's allocator, in bytes. It reads them only when a process starts. */
const ALLOCATOR_SETTINGS = { MALLOC_MMAP_THRESHOLD_: "1048576", MALLOC_TRIM_THRESHOLD_: "67108864" };

const { argv, env, execArgv, execPath } = process;
const hasOptions = process.platform === "win32" || V8_OPTIONS.every((option) => execArgv.includes(option));
// The service starts again with its options, before the rest of the program is loaded.
if ((argv[2] ?? "serve") === "serve" && !hasOptions)
	process.execve?.(execPath, [execPath, ...execArgv, ...V8_OPTIONS, ...argv.slice(1)], {
		...ALLOCATOR_SETTINGS,
		...env,
	});

const { runProgram } = await import("./commands/program.ts");
await runProgram(process.argv.slice(2), process.env);
