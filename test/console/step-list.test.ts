import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Json } from "../../console/src/pages/conversation/parts.ts";
import { StepList } from "../../console/src/pages/conversation/step-list.ts";
import type { ParsedEvent, Step } from "../../console/src/pages/conversation/steps.ts";

function event(sequence: number, kind: string, members: Json = {}, parent?: number): ParsedEvent {
	return {
		sequence: BigInt(sequence),
		id: `event-${sequence}`,
		kind,
		source: "agent",
		parentId: parent === undefined ? undefined : `event-${parent}`,
		time: sequence * 1000,
		members,
		unreadable: false,
	};
}

const message = (sequence: number, parent?: number) => event(sequence, "MessageEvent", {}, parent);
const action = (sequence: number) =>
	event(sequence, "ActionEvent", { tool_name: "terminal", action: { command: "ls" } });
const result = (sequence: number, of: number) =>
	event(sequence, "ObservationEvent", { action_id: `event-${of}`, observation: { content: `result ${sequence}` } });
const toolCall = (sequence: number, call: string) => event(sequence, "ACPToolCallEvent", { tool_call_id: call });

function listOf(...batches: readonly (readonly ParsedEvent[])[]): StepList {
	const list = new StepList();
	for (const batch of batches) list.add(batch);
	return list;
}

const idsOf = (steps: readonly Step[]) => steps.map(({ events }) => events.map(({ sequence }) => Number(sequence)));

describe("the order of steps", () => {
	test.each<[string, ParsedEvent[], number[][]]>([
		["by sequence", [message(2), message(1), message(3)], [[1], [2], [3]]],
		["after the parent", [message(1, 3), message(2), message(3)], [[3], [1], [2]]],
		["with results beside their action", [action(1), message(2), result(3, 1)], [[1, 3], [2]]],
		["with results that came before their action", [result(1, 3), message(2), action(3)], [[2], [3, 1]]],
		["with a result alone whose action is missing", [message(1), result(2, 9)], [[1], [2]]],
		["with a result of a result alone", [action(1), result(2, 1), result(3, 2)], [[1, 2], [3]]],
		["with the reports of a tool call as one", [toolCall(1, "a"), toolCall(2, "b"), toolCall(3, "a")], [[1, 3], [2]]],
		["with a hook alone", [action(1), event(2, "HookExecutionEvent", { action_id: "event-1" })], [[1], [2]]],
	])("is %s", (_, events, steps) => {
		expect(idsOf(listOf(events).steps)).toEqual(steps);
		expect(idsOf(listOf(...events.map((one) => [one])).steps)).toEqual(steps);
	});

	test("holds when a result and an event out of order arrive together", () => {
		const list = listOf([action(1), message(2, 4)], [result(3, 1), message(4)]);
		expect(idsOf(list.steps)).toEqual([[1, 3], [4], [2]]);
	});

	test("does not depend on how events arrive", () => {
		const number = fc.integer({ min: 1, max: 30 });
		const anyEvent = fc.oneof(
			fc.tuple(number, fc.option(number, { nil: undefined })).map(([at, parent]) => message(at, parent)),
			number.map(action),
			fc.tuple(number, number).map(([at, of]) => result(at, of)),
			fc.tuple(number, fc.constantFrom("a", "b")).map(([at, call]) => toolCall(at, call)),
		);
		const events = fc.uniqueArray(anyEvent, { selector: ({ sequence }) => sequence, maxLength: 25 });
		const arrived = events.chain((all) =>
			fc.tuple(
				fc.constant(all),
				fc.shuffledSubarray(all, { minLength: all.length }),
				fc.array(fc.integer({ min: 1, max: 4 }), { minLength: all.length, maxLength: all.length }),
			),
		);
		fc.assert(
			fc.property(arrived, ([all, shuffled, sizes]) => {
				const list = new StepList();
				let from = 0;
				for (const size of sizes) {
					// Some arrive twice.
					list.add(shuffled.slice(Math.max(0, from - 1), from + size));
					from += size;
				}
				const expected = listOf(all);
				expect(list.steps).toEqual(expected.steps);
				for (const { id, sequence } of all) {
					expect(list.stepWith(id)).toEqual(expected.stepWith(id));
					expect(list.stepWith(id)?.events.map((one) => one.sequence)).toContain(sequence);
					expect(list.stepAfter(id)).toEqual(expected.stepAfter(id));
				}
				// Each event is in one step.
				const placed = list.steps.flatMap(({ events: of }) => of.map(({ sequence }) => Number(sequence)));
				expect(placed.sort((a, b) => a - b)).toEqual(all.map(({ sequence }) => Number(sequence)).sort((a, b) => a - b));
			}),
			{ numRuns: 500 },
		);
	});
});

describe("of 10,000 steps, only those are made anew to which something was added", () => {
	const many = Array.from({ length: 10_000 }, (_, index) => (index === 5_000 ? action(index + 1) : message(index + 1)));

	test.each<[string, ParsedEvent[], number, number]>([
		["a new event", [message(10_001, 10_000)], 1, 0],
		["forty new events", Array.from({ length: 40 }, (_, index) => message(10_001 + index)), 40, 0],
		["the result of an action", [result(10_001, 5_001)], 0, 1],
		["a new action and its result", [action(10_001), result(10_002, 10_001)], 1, 0],
		["an event that the service has sent before", [message(7)], 0, 0],
	])("%s", (_, added, appended, changed) => {
		const list = listOf(many);
		const before = list.steps;
		list.add(added);
		expect(list.steps.length - before.length).toBe(appended);
		expect(before.filter((step, index) => list.steps[index] !== step)).toHaveLength(changed);
	});

	test("older events come before them", () => {
		const list = listOf(many.slice(9_800));
		const before = list.steps;
		list.add(many.slice(0, 9_800));
		expect(list.steps.slice(9_800).filter((step, index) => step !== before[index])).toEqual([]);
		expect(list.steps).toHaveLength(10_000);
	});

	test("the parent of an event that came late", () => {
		const child = message(10_001, 10_002);
		const list = listOf([...many, child]);
		const before = new Set(list.steps);
		list.add([message(10_002)]);
		expect(idsOf(list.steps.slice(-2))).toEqual([[10_002], [10_001]]);
		expect(list.steps.filter((step) => !before.has(step))).toHaveLength(1);
	});
});
