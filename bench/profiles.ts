import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";

/** Maximum number of functions shown per thread, and minimum processor time, in seconds, of a thread that is shown. */
const MAX_FUNCTIONS = 25;
const MIN_BUSY_SECONDS = 0.5;
const SOURCE = fileURLToPath(new URL("../dist/", import.meta.url));

const callFrame = z.object({ functionName: z.string(), url: z.string(), lineNumber: z.int() });
const profile = z.object({
	nodes: z.array(z.object({ id: z.int(), callFrame, children: z.array(z.int()).default([]) })),
	samples: z.array(z.int()),
	/** In microseconds. */
	timeDeltas: z.array(z.number()),
});

type Frame = z.output<typeof callFrame>;

/**
 * Shows where each profiled thread spent its time: first by the function that ran, then by the function of the service
 * that called it, directly or indirectly.
 */
export async function showProfiles(folder: string): Promise<string> {
	const names = (await readdir(folder)).filter((name) => name.endsWith(".cpuprofile")).sort();
	const texts: string[] = [];
	for (const name of names) {
		const { nodes, samples, timeDeltas } = profile.parse(JSON.parse(await readFile(join(folder, name), "utf8")));
		const frames = new Map(nodes.map((node) => [node.id, node.callFrame]));
		const parents = new Map(nodes.flatMap(({ id, children }) => children.map((child) => [child, id] as const)));
		const [byFunction, byOwner] = [new Map<string, number>(), new Map<string, number>()];
		let busy = 0;
		for (const [index, id] of samples.entries()) {
			const time = (timeDeltas[index] ?? 0) / 1e6;
			const frame = frames.get(id);
			if (frame === undefined || frame.functionName === "(idle)") continue;
			busy += time;
			add(byFunction, labelOf(frame), time);
			add(byOwner, labelOf(ownerOf(id, frames, parents) ?? { ...frame, url: "" }), time);
		}
		if (busy < MIN_BUSY_SECONDS) continue;
		texts.push(`${name}: ${busy.toFixed(1)} s of work`, "by function", ...top(byFunction, busy));
		texts.push("by function of the service, with what it calls outside of it", ...top(byOwner, busy));
	}
	return texts.join("\n");
}

/** Returns the innermost function on the stack that belongs to the service. */
function ownerOf(id: number, frames: Map<number, Frame>, parents: Map<number, number>): Frame | undefined {
	for (let at: number | undefined = id; at !== undefined; at = parents.get(at)) {
		const frame = frames.get(at);
		if (frame?.url.startsWith("file:") === true && fileURLToPath(frame.url).startsWith(SOURCE)) return frame;
	}
	return undefined;
}

function add(times: Map<string, number>, label: string, time: number): void {
	times.set(label, (times.get(label) ?? 0) + time);
}

function top(times: Map<string, number>, busy: number): string[] {
	const sorted = [...times].sort(([, a], [, b]) => b - a).slice(0, MAX_FUNCTIONS);
	return sorted.map(([label, time]) => `  ${((100 * time) / busy).toFixed(1).padStart(5)} %  ${label}`);
}

function labelOf({ functionName, url, lineNumber }: Frame): string {
	const name = functionName || "(anonymous)";
	if (url === "") return name;
	const path = url.startsWith("file:") ? fileURLToPath(url) : url;
	return `${name}  ${path.replace(SOURCE, "dist/").replace(/^.*node_modules\//, "")}:${lineNumber + 1}`;
}
