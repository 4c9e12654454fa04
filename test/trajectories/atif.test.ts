import { create, type JsonObject } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { atifOf } from "../../src/trajectories/atif.ts";
import { messagesOf } from "../../src/trajectories/trajectories.ts";

/** Returns the trajectory of events, each with the seconds at which it happened. */
function trajectoryOf(...events: readonly (readonly [seconds: number, event: JsonObject])[]) {
	const trajectory = atifOf({
		summary: create(ConversationSummarySchema, { id: "c" }),
		record: undefined,
		events: events.map(([seconds, event], n) => ({
			...{ sequence: BigInt(n + 1), happenedAt: BigInt(seconds * 1e6), text: JSON.stringify(event) },
		})),
		scores: [],
		children: [],
	});
	if (trajectory === undefined) throw new Error("there are steps");
	return trajectory;
}

const action = (id: string, call: string, args: string): JsonObject => ({
	...{ id, kind: "ActionEvent", tool_call_id: call, llm_response_id: id },
	tool_call: { name: "terminal", arguments: args },
});
const result = (id: string, actionId: string, call: string): JsonObject => ({
	...{ id, kind: "ObservationEvent", action_id: actionId, tool_call_id: call },
	observation: { content: [{ type: "text", text: id }] },
});

test.each([
	['{"a":"\\ud83d"}', { arguments: {}, extra: { raw_arguments: '{"a":"\\ud83d"}' } }],
	['{"\\ud83d":1}', { arguments: {}, extra: { raw_arguments: '{"\\ud83d":1}' } }],
	["[1]", { arguments: {}, extra: { raw_arguments: "[1]" } }],
	['{"a":"\\ud83d\\ude00"}', { arguments: { a: "😀" } }],
])("the arguments %s are kept", (args, members) => {
	const trajectory = trajectoryOf([1, action("a1", "c1", args)], [2, result("r1", "a1", "c1")]);
	expect(trajectory.steps).toMatchObject([{ tool_calls: [{ tool_call_id: "c1", ...members }] }]);
	const isRaw = "extra" in members;
	expect(messagesOf(trajectory).messages).toMatchObject([
		{
			tool_calls: [
				{
					function: { arguments: isRaw ? args : JSON.stringify(members.arguments) },
					...(isRaw ? { raw_arguments: true } : {}),
				},
			],
		},
		{ role: "tool" },
	]);
});

test("results of two calls with one id are with the action that they name", () => {
	const { steps } = trajectoryOf(
		[1, action("a1", "same", "{}")],
		[2, action("a2", "same", "{}")],
		[3, result("of a2", "a2", "same")],
		[4, result("of a1", "a1", "same")],
	);
	expect(steps).toMatchObject([
		{ observation: { results: [{ content: "of a1" }] } },
		{ observation: { results: [{ content: "of a2" }] } },
	]);
});

test("after a step back of the clock the steps have the order of the log", () => {
	const { steps } = trajectoryOf(
		[100, action("a1", "c1", "{}")],
		[41, result("r1", "a1", "c1")],
		[42, action("a2", "c2", "{}")],
		[43, result("r2", "a2", "c2")],
	);
	expect(steps).toMatchObject([
		{ timestamp: "1970-01-01T00:01:40Z", observation: { results: [{ content: "r1" }] } },
		{ timestamp: "1970-01-01T00:00:42Z", observation: { results: [{ content: "r2" }] } },
	]);
});
