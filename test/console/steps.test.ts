import { describe, expect, test } from "vitest";
import { type Json, objectOf, type Part, textsOfParts } from "../../console/src/pages/conversation/parts.ts";
import { StepList } from "../../console/src/pages/conversation/step-list.ts";
import { lookOfStep, type ParsedEvent, type Step, type StepLook } from "../../console/src/pages/conversation/steps.ts";
import { capturedBatches, capturedSequences } from "../support/fixtures.ts";

/** What steps show of their events. */

function parsed(members: Json, sequence: number): ParsedEvent {
	const text = (name: string) => (typeof members[name] === "string" ? members[name] : undefined);
	return {
		sequence: BigInt(sequence),
		id: text("id") ?? `event-${sequence}`,
		kind: text("kind") ?? "",
		source: text("source") ?? "",
		parentId: undefined,
		time: sequence * 1000,
		members,
		unreadable: false,
	};
}

function stepsOf(events: readonly Json[]): readonly Step[] {
	const list = new StepList();
	list.add(events.map((event, index) => parsed(event, index + 1)));
	return list.steps;
}

/** Returns each text of a value. */
function textsOf(value: unknown): readonly string[] {
	if (typeof value === "string") return [value];
	return typeof value === "object" && value !== null ? Object.values(value).flatMap(textsOf) : [];
}

/** Returns all texts of a step. A picture counts by its address. */
function shownBy(look: StepLook): readonly string[] {
	return [look.title, look.subject, ...look.tags.map(({ word }) => word), ...textsOfParts(look.parts)];
}

/** Number of folds that a person opens one within the other to see all parts. */
function foldsOf(parts: readonly Part[]): number {
	return Math.max(0, ...parts.map((part) => (part.kind === "fold" ? 1 + foldsOf(part.parts) : 0)));
}

/** Returns the arguments of an event: those of the action, and those that the model gave. */
function argumentsOf(event: Json): readonly string[] {
	const { kind: _, ...action } = objectOf(event.action) ?? {};
	const given: unknown = JSON.parse(String(objectOf(event.tool_call)?.arguments ?? "{}"));
	return [...textsOf(action), ...textsOf(given), ...textsOf(event.raw_input), ...textsOf(event.raw_output)];
}

const CORPUS: readonly (readonly [string, readonly Json[]])[] = [
	...capturedBatches().map(({ name, events }) => [name, events] as const),
	...capturedSequences().map(({ name, posts }) => {
		const bodies = posts.filter(({ webhook }) => webhook === "events").map(({ body }): unknown => JSON.parse(body));
		return [name, bodies.flat().map((event) => objectOf(event) ?? {})] as const;
	}),
];

describe("all events of the corpus", () => {
	test.each(CORPUS)("%s: each text of each argument is shown, or behind one fold", (_, events) => {
		for (const step of stepsOf(events)) {
			const look = lookOfStep(step);
			const shown = shownBy(look);
			for (const { members } of step.events)
				for (const argument of argumentsOf(members))
					if (!["HIGH", "MEDIUM", "LOW", "UNKNOWN"].includes(argument))
						expect(
							shown.some((text) => text.includes(argument)),
							argument,
						).toBe(true);
			if (step.look === "tool") expect(foldsOf(look.parts)).toBeLessThanOrEqual(1);
		}
	});

	test("are many, and of many kinds", () => {
		const kinds = new Set(CORPUS.flatMap(([, events]) => events.map(({ kind }) => kind)));
		expect(kinds.size).toBeGreaterThanOrEqual(13);
	});
});
