import { readFile } from "node:fs/promises";

/** The unit of times in `/proc/<pid>/stat`: 1/100 s on every Linux that Node.js supports (proc(5), `_SC_CLK_TCK`). */
const TICKS_PER_SECOND = 100;

/** Returns the processor time that all threads of a process have used, in seconds. Linux only; NaN elsewhere. */
export async function processorSeconds(pid: number): Promise<number> {
	return await seconds(pid, 11);
}

/** Returns the processor time that the ended child processes of a process have used, in seconds. Linux only; NaN elsewhere. */
export async function childSeconds(pid: number): Promise<number> {
	return await seconds(pid, 13);
}

/** Returns the sum of two neighbouring times in `/proc/<pid>/stat`. */
async function seconds(pid: number, first: number): Promise<number> {
	try {
		const stat = await readFile(`/proc/${pid}/stat`, "utf8");
		// The command's name in parentheses may contain spaces. The next field is number 3.
		const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
		return (Number(fields[first]) + Number(fields[first + 1])) / TICKS_PER_SECOND;
	} catch {
		return Number.NaN;
	}
}

/** Returns the peak resident memory of a process since its start, in bytes. Linux only; NaN elsewhere. */
export async function peakResidentBytes(pid: number): Promise<number> {
	try {
		const status = await readFile(`/proc/${pid}/status`, "utf8");
		return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1] ?? Number.NaN) * 1024;
	} catch {
		return Number.NaN;
	}
}

/** Returns the bytes that a process has caused to be written to disks since its start. Linux only; NaN elsewhere. */
export async function writtenBytes(pid: number): Promise<number> {
	try {
		const io = await readFile(`/proc/${pid}/io`, "utf8");
		return Number(/^write_bytes: (\d+)$/m.exec(io)?.[1] ?? Number.NaN);
	} catch {
		return Number.NaN;
	}
}
