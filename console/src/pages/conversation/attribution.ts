import { sumOfCosts } from "../../../../src/record/stats.ts";
import { cost, duration } from "../../parts/format.ts";
import { type Call, callsOf } from "./calls.ts";
import type { Json } from "./parts.ts";
import { type SpentTime, spentTimeOf } from "./spent-time.ts";
import type { Step } from "./steps.ts";

/** What steps have cost and how long they took, and which of them stand out. */
export interface Attribution {
	/** The calls of models that the record lists. */
	readonly calls: readonly Call[];
	/** The price of steps, by the id of the step. */
	readonly prices: ReadonlyMap<string, Price>;
	readonly marks: readonly Mark[];
	readonly failed: readonly Step[];
	readonly spent: SpentTime;
}

/** What the response of a model cost that asked for a step. */
export interface Price {
	readonly cost: number | undefined;
	/** Prompt and completion tokens. */
	readonly tokens: number | undefined;
}

export const NO_ATTRIBUTION: Attribution = {
	calls: [],
	prices: new Map(),
	marks: [],
	failed: [],
	spent: spentTimeOf([]),
};

/** Returns what a record and the steps themselves say of their cost and time. */
export function attributionOf(record: Json | undefined, steps: readonly Step[]): Attribution {
	const firsts = new Map<string, Step>();
	// The model may ask for several steps with one response, which the first of them shows.
	for (const step of steps)
		if (step.responseId !== undefined && !firsts.has(step.responseId)) firsts.set(step.responseId, step);
	const calls = callsOf(record, (responseId) => {
		const step = firsts.get(responseId);
		return step && step.time / 1000;
	});
	const prices = new Map<string, Price>();
	for (const { responseId, cost: own, tokens } of calls) {
		const step = firsts.get(responseId);
		if (step === undefined) continue;
		const before = prices.get(step.id);
		prices.set(step.id, {
			cost: before?.cost === undefined ? own : sumOfCosts([before.cost, own ?? 0]),
			tokens: before?.tokens === undefined ? tokens : before.tokens + (tokens ?? 0),
		});
	}
	return {
		calls,
		prices,
		marks: marksOf(steps, prices),
		failed: steps.filter(({ failed }) => failed),
		spent: spentTimeOf(steps),
	};
}

/** A step that stands out among the others. */
export interface Mark {
	readonly word: "slowest" | "dearest";
	readonly step: Step;
	/** Its time or its cost, with the unit. */
	readonly value: string;
}

/** Returns which steps are the slowest and the dearest. */
function marksOf(steps: readonly Step[], prices: ReadonlyMap<string, Price>): readonly Mark[] {
	const mark = (
		word: Mark["word"],
		value: (step: Step) => number | undefined,
		shown: (value: number) => string,
	): Mark[] => {
		let found: Step | undefined;
		let most = 0;
		let count = 0;
		for (const step of steps) {
			const own = value(step) ?? 0;
			if (own > 0) count += 1;
			if (own > most) [found, most] = [step, own];
		}
		return found === undefined || count < 2 ? [] : [{ word, step: found, value: shown(most) }];
	};
	return [
		...mark("slowest", (step) => step.duration, duration),
		...mark("dearest", ({ id }) => prices.get(id)?.cost, cost),
	];
}
