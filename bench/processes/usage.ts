import { readFile } from "node:fs/promises";

/** The unit of the times in `/proc/<pid>/stat`: 1/100 s on every Linux that Node runs on (proc(5), `_SC_CLK_TCK`). */
const TICKS_PER_SECOND = 100;

/** Processor time that a process has used in all its threads, in seconds. Linux only; NaN elsewhere. */
export async function processorSeconds(pid: number): Promise<number> {
	try {
		const stat = await readFile(`/proc/${pid}/stat`, "utf8");
		// The command's name in parentheses may hold spaces; the fields after it are numbered from 3.
		const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
		return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
	} catch {
		return Number.NaN;
	}
}

/** Greatest resident memory that a process has had since its start, in bytes. Linux only; NaN elsewhere. */
export async function peakResidentBytes(pid: number): Promise<number> {
	try {
		const status = await readFile(`/proc/${pid}/status`, "utf8");
		return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1] ?? Number.NaN) * 1024;
	} catch {
		return Number.NaN;
	}
}
