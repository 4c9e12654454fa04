/** V8 options of the service. docs/architecture.md (Threads) says what they and the allocator's settings bring. */
const V8_OPTIONS = ["--no-allocation-site-pretenuring", "--heap-growing-percent=100"];
/** Settings of glibc's allocator, in bytes. It reads them only when a process starts. */
const ALLOCATOR_SETTINGS = { MALLOC_MMAP_THRESHOLD_: "1048576", MALLOC_TRIM_THRESHOLD_: "67108864" };

/** Starts this process again with the options and settings of the service, unless it has them. */
export function ensureOptions(): void {
	const { argv, env, execArgv, execPath } = process;
	if (process.platform === "win32" || V8_OPTIONS.every((option) => execArgv.includes(option))) return;
	process.execve?.(execPath, [execPath, ...execArgv, ...V8_OPTIONS, ...argv.slice(1)], {
		...ALLOCATOR_SETTINGS,
		...env,
	});
}
