import { type ParsedEvent, type Step, statusOf } from "./steps.ts";

/** Where the time of a conversation went: to models, to tools, or to waiting for people. */

export type TimeKind = "model" | "tool" | "waiting";

/** A part of the time of a conversation, in milliseconds of Unix time. */
export interface Span {
	readonly kind: TimeKind;
	readonly from: number;
	readonly to: number;
	/** The step that took the time, or that ended it. */
	readonly step: Step;
}

export interface SpentTime {
	/** The parts, in order and without a gap. Neighbours of one kind and step are one. */
	readonly spans: readonly Span[];
	/** Milliseconds of each kind. */
	readonly sums: Readonly<Record<TimeKind, number>>;
}

/** Statuses in which the agent works. In all others it waits for a person. */
const WORKING = new Set(["running"]);
/** Status in which calls of tools wait for a person, and are made later. */
const WAITING = "waiting_for_confirmation";

/**
 * Returns where the time between the events of steps went. While the agent does not run, it waits. While it runs, the
 * time is that of a tool if the result of a call is not there yet, else that of the model. The step of a tool is the
 * call that began first. A conversation of which no status is known runs until a person writes.
 */
export function spentTimeOf(steps: readonly Step[]): SpentTime {
	const placed = steps.flatMap((step) => step.events.map((event) => ({ event, step })));
	placed.sort((a, b) => a.event.time - b.event.time || (a.event.sequence < b.event.sequence ? -1 : 1));
	const hasStatus = placed.some(({ event }) => statusOf(event) !== undefined);
	const spans: Span[] = [];
	const sums = { model: 0, tool: 0, waiting: 0 };
	// The calls without a result so far, in order.
	const open = new Set<Step>();
	let works = !hasStatus;
	let before: ParsedEvent | undefined;
	for (const { event, step } of placed) {
		if (before !== undefined && event.time > before.time) {
			const [call] = open;
			const isAsked = !hasStatus && step.look === "user";
			const kind = !works || isAsked ? "waiting" : call === undefined ? "model" : "tool";
			const owner = kind === "tool" && call !== undefined ? call : step;
			const last = spans.at(-1);
			sums[kind] += event.time - before.time;
			if (last?.kind === kind && last.step === owner) spans[spans.length - 1] = { ...last, to: event.time };
			else spans.push({ kind, from: before.time, to: event.time, step: owner });
		}
		const status = statusOf(event);
		if (status !== undefined) {
			works = WORKING.has(status);
			// What an interrupted run began has no end.
			if (!works && status !== WAITING) open.clear();
		}
		if (step.look === "tool") {
			if (event === step.events.at(-1) && !step.isOpen) open.delete(step);
			else if (event === step.events[0]) open.add(step);
		}
		before = event;
	}
	return { spans, sums };
}
