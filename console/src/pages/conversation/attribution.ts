import { cost, duration } from "../../parts/format.ts";
import { type Call, callsOf } from "./calls.ts";
import type { Json, Step } from "./steps.ts";

/** What steps have cost, and which of them stand out. */
export interface Attribution {
	/** The calls of models that the record lists. */
	readonly calls: readonly Call[];
	/** The cost of steps, by the id of the step. */
	readonly costs: ReadonlyMap<string, number>;
	readonly marks: readonly Mark[];
}

/** Returns what a record says of the cost of steps. */
export function attributionOf(record: Json | undefined, steps: readonly Step[]): Attribution {
	const times = new Map(
		steps.flatMap(({ responseId, time }) => (responseId === undefined ? [] : [[responseId, time / 1000] as const])),
	);
	const calls = callsOf(record, (responseId) => times.get(responseId));
	const costs = costsOf(calls, steps);
	return { calls, costs, marks: marksOf(steps, costs) };
}

/** Returns the cost of steps: of the call that was listed last before the step, and belongs to no step before it. */
function costsOf(all: readonly Call[], steps: readonly Step[]): ReadonlyMap<string, number> {
	const calls = all.filter((call) => call.cost !== undefined);
	const prices = new Map<string, number>();
	let next = 0;
	const seen = new Set<string>();
	for (const { id, responseId, time } of steps) {
		if (responseId === undefined || seen.has(responseId)) continue;
		seen.add(responseId);
		let price: number | undefined;
		for (; next < calls.length; next += 1) {
			const call = calls[next];
			if (call === undefined || call.time * 1000 > time + 500) break;
			price = (price ?? 0) + (call.cost ?? 0);
		}
		if (price !== undefined) prices.set(id, price);
	}
	return prices;
}

/** A step that stands out among the others. */
export interface Mark {
	readonly word: "slowest" | "dearest";
	readonly step: Step;
	/** Its time or its cost, with the unit. */
	readonly value: string;
}

/** Returns which steps are the slowest and the dearest. */
function marksOf(steps: readonly Step[], costs: ReadonlyMap<string, number>): readonly Mark[] {
	const mark = (
		word: Mark["word"],
		value: (step: Step) => number | undefined,
		shown: (value: number) => string,
	): Mark[] => {
		const found = steps.filter((step) => (value(step) ?? 0) > 0).sort((a, b) => (value(b) ?? 0) - (value(a) ?? 0));
		const [step] = found;
		return step === undefined || found.length < 2 ? [] : [{ word, step, value: shown(value(step) ?? 0) }];
	};
	return [...mark("slowest", (step) => step.duration, duration), ...mark("dearest", ({ id }) => costs.get(id), cost)];
}
