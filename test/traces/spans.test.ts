import { createHash } from "node:crypto";
import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ScoreSchema } from "../../gen/conversations/v1/score_service_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { toValue } from "../../src/record/json/json-form.ts";
import { fromMicroseconds, parseDateTime, toMicroseconds } from "../../src/record/json/scalars.ts";
import { Facts } from "../../src/traces/facts.ts";
import { otlpRequests } from "../../src/traces/otlp.ts";
import { type RunTrace, type TraceSource, tracesOf, withRuns } from "../../src/traces/spans.ts";
import { capturedBatches, capturedSequences, object } from "../support/fixtures.ts";

/** A conversation as it was captured. */
interface Captured {
	readonly id: string;
	readonly record: JsonObject | undefined;
	readonly events: readonly JsonObject[];
}

const captured: readonly Captured[] = [
	...capturedSequences().map(({ conversationId: id, posts }) => {
		const bodies = posts.map(({ webhook, body }) => ({ webhook, json: JSON.parse(body) }));
		return {
			id,
			record: bodies.findLast(({ webhook }) => webhook === "conversations")?.json,
			events: bodies.flatMap(({ webhook, json }) => (webhook === "events" ? json : [])),
		};
	}),
	...Map.groupBy(capturedBatches(), ({ name }) => name.replace(/-batch\d+$/, ""))
		.entries()
		.map(([id, batches]) => ({ id, record: undefined, events: batches.flatMap(({ events }) => events) })),
];

function sourceOf(
	{ id, record, events }: Captured,
	more: Partial<TraceSource> & { content?: boolean } = {},
): TraceSource {
	const { content = true, ...rest } = more;
	const facts = new Facts(content, new Set(["gap"]));
	facts.addStats(record?.stats);
	for (const event of events) {
		const time = parseDateTime(`${String(event.timestamp)}Z`);
		if (time === undefined) throw new TypeError("a time is expected");
		const happenedAt = toMicroseconds(time);
		facts.add({ happenedAt, receivedAt: happenedAt + 5n, text: JSON.stringify(event) });
	}
	const agent = object(record?.agent ?? { kind: "Agent" });
	const summary = create(ConversationSummarySchema, { id, agentKind: String(agent.kind), model: "openai/m1" });
	return withRuns({ summary, record, facts, scores: [], parent: undefined, ...rest });
}

const SENDER = { name: "service", version: "1" };
const encoded = async (traces: readonly RunTrace[]) => {
	const bodies = await Promise.all(traces.map(({ spans }) => otlpRequests(spans, SENDER)));
	return bodies.flat().map((body) => Buffer.from(body).toString("base64"));
};

describe("of captured conversations", () => {
	test("the spans are the same in each order of arrival, and when they are made again", async () => {
		const withRuns = captured.filter((one) => tracesOf(sourceOf(one)).length > 0);
		expect(withRuns.length).toBeGreaterThan(50);
		for (const one of withRuns) {
			const expected = tracesOf(sourceOf(one));
			const bodies = await encoded(expected);
			await fc.assert(
				fc.asyncProperty(fc.shuffledSubarray([...one.events], { minLength: one.events.length }), async (events) => {
					const traces = tracesOf(sourceOf({ ...one, events }));
					expect(traces).toEqual(expected);
					expect(await encoded(traces)).toEqual(bodies);
				}),
				{ numRuns: 5 },
			);
		}
	});

	test("each span is in the tree of its run, and the tokens add up to those of the record", () => {
		let compared = 0;
		for (const one of captured) {
			const traces = tracesOf(sourceOf(one));
			const spans = traces.flatMap((trace) => trace.spans);
			expect(new Set(spans.map(({ spanId }) => spanId)).size).toBe(spans.length);
			for (const { spans: own } of traces) {
				const [root, ...others] = own;
				expect(root?.parentId).toBe(undefined);
				for (const span of others) expect([span.traceId, span.parentId]).toEqual([root?.traceId, root?.spanId]);
				for (const { start, end } of own) expect(start <= end && start >= (root?.start ?? end)).toBe(true);
			}
			const listed = listedTokens(one);
			if (listed === undefined || spans.length === 0) continue;
			compared += 1;
			const sum = (name: string) =>
				spans.reduce((total, { attributes }) => total + Number(attributes[`gen_ai.usage.${name}`] ?? 0), 0);
			expect([one.id, sum("input_tokens"), sum("output_tokens")]).toEqual([one.id, ...listed]);
		}
		expect(compared).toBeGreaterThan(30);
	});
});

/** Returns the prompt and completion tokens of a conversation by the totals of its record, or of its last full state. */
function listedTokens({ record, events }: Captured): readonly [number, number] | undefined {
	const states = events.filter(({ key }) => key === "full_state").map(({ value }) => object(value ?? null).stats);
	const stats = record?.stats ?? states.at(-1);
	if (stats == null) return undefined;
	const totals = Object.values(object(object(stats).usage_to_metrics ?? {})).map((metrics) => {
		const { accumulated_token_usage: total } = object(metrics);
		return total == null ? { prompt_tokens: 0, completion_tokens: 0 } : object(total);
	});
	const sum = (name: string) => totals.reduce((all, total) => all + Number(total[name] ?? 0), 0);
	return sum("prompt_tokens") === 0 ? undefined : [sum("prompt_tokens"), sum("completion_tokens")];
}

const at = (second: number) => `2026-03-01T10:00:${String(second).padStart(2, "0")}`;
const micros = (second: number) => BigInt(Date.parse(`${at(second)}Z`)) * 1000n;
const text = (value: string) => [{ type: "text", text: value }];
const event = (n: number, id: string, kind: string, more: JsonObject): JsonObject => ({
	...{ id, timestamp: at(n), source: "agent", kind, ...more },
});
const status = (n: number, value: string) =>
	event(n, `${value} ${n}`, "ConversationStateUpdateEvent", { key: "execution_status", value });
const action = (n: number, call: string, response: string, args = "{}") =>
	event(n, `action ${call}`, "ActionEvent", {
		...{ tool_name: "terminal", tool_call_id: call, llm_response_id: response, thought: text("I look.") },
		...{ reasoning_content: "because", tool_call: { id: call, name: "terminal", arguments: args } },
	});
const result = (n: number, call: string, content: JsonValue, isError = false) =>
	event(n, `result ${call}`, "ObservationEvent", {
		...{ tool_name: "terminal", tool_call_id: call, observation: { content, is_error: isError } },
	});
const message = (n: number, role: string, content: string, more: JsonObject = {}) =>
	event(n, `message ${n}`, "MessageEvent", { llm_message: { role, content: text(content) }, ...more });

/** A run with three calls of tools, one of which fails and one of which has no result; then one that fails. */
const EVENTS: readonly JsonObject[] = [
	event(0, "prompt", "SystemPromptEvent", { system_prompt: { type: "text", text: "Be brief." } }),
	message(1, "user", "Fix it."),
	status(2, "running"),
	action(4, "c1", "r1", '{"command":"ls"}'),
	action(4, "c2", "r1"),
	event(5, "gap", "HookExecutionEvent", {}),
	event(6, "rejected", "UserRejectObservation", { tool_name: "terminal", tool_call_id: "c2", rejection_reason: "no" }),
	result(9, "c1", text("a b")),
	action(11, "c3", "r2"),
	message(12, "assistant", "Done.", { llm_response_id: "r3" }),
	status(13, "finished"),
	result(20, "lost", text("late")),
	message(30, "user", "Again."),
	status(31, "running"),
	status(32, "error"),
	event(33, "failed", "ConversationErrorEvent", { code: "Limit", detail: "It was reached." }),
	message(40, "user", "Once more."),
];
const usage = (responseId: string, prompt: number) => ({
	...{ response_id: responseId, model: "m2", prompt_tokens: prompt, completion_tokens: 2, cache_read_tokens: 4 },
});
const RECORD: JsonObject = {
	agent: { kind: "Agent" },
	stats: {
		usage_to_metrics: {
			agent: {
				token_usages: [usage("title", 1), usage("r1", 10), usage("r2", 20)],
				response_latencies: [{ response_id: "r1", latency: 1.5 }],
				costs: [
					{ timestamp: Number(micros(4)) / 1e6, cost: 0.1 },
					{ timestamp: Number(micros(4)) / 1e6, cost: 0.2 },
					{ timestamp: Number(micros(32)) / 1e6, cost: 0.5 },
				],
			},
		},
	},
};
const PARENT = { id: "parent", record: RECORD, events: EVENTS };
/** Returns an id as the code makes it, by its digits and what it is made of. */
const idOf = (digits: number, ...parts: readonly string[]) =>
	createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, digits);
const TRACE = idOf(32, "trace", "parent", "message 1");
const ROOT = idOf(16, "run", "parent", "message 1");

test("a run, its calls of models and of tools are spans by the conventions", () => {
	const [first, second, third, ...others] = tracesOf(sourceOf(PARENT));
	expect(others).toEqual([]);
	expect([first, second, third].map((trace) => trace?.run.status)).toEqual(["finished", "error", undefined]);
	const common = { "gen_ai.conversation.id": "parent" };
	const model = { "gen_ai.request.model": "m2" };
	const counts = (prompt: number) => ({
		...{ "gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": 2 },
		...{ "gen_ai.usage.cache_read.input_tokens": 4, "gen_ai.usage.cache_creation.input_tokens": 0 },
		"gen_ai.usage.reasoning.output_tokens": 0,
	});
	const chat = (response: string, start: bigint, end: bigint, attributes: object, name = "m2") => ({
		...{ traceId: TRACE, spanId: idOf(16, "chat", "parent", "message 1", response, "0"), parentId: ROOT },
		...{ name: `chat ${name}`, kind: "client", start, end, error: undefined, events: [] },
		attributes: { ...common, "gen_ai.operation.name": "chat", "gen_ai.response.id": response, ...attributes },
	});
	const tool = (call: string, start: number, end: number, attributes: object, error?: object) => ({
		...{ traceId: TRACE, spanId: idOf(16, "tool", "parent", "message 1", call), parentId: ROOT },
		...{ name: "execute_tool terminal", kind: "internal", start: micros(start), end: micros(end), error, events: [] },
		attributes: {
			...{ ...common, "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "terminal" },
			...{ "gen_ai.tool.call.id": call, "gen_ai.tool.type": "function", ...attributes },
		},
	});
	const parts = (...list: readonly object[]) => ({ role: "assistant", parts: list });
	const thought = [
		{ type: "reasoning", content: "because" },
		{ type: "text", content: "I look." },
	];
	const call = (id: string, args: string) => ({ type: "tool_call", id, name: "terminal", arguments: args });
	const given = (id: string, response: string) => ({
		role: "tool",
		parts: [{ type: "tool_call_response", id, response }],
	});
	const user = { role: "user", parts: [{ type: "text", content: "Fix it." }] };
	const done = { ...parts({ type: "text", content: "Done." }), finish_reason: "stop" };
	const json = (...list: readonly object[]) => JSON.stringify(list);
	const estimated = { "conversations.start_estimated": true };
	expect(first?.spans).toEqual([
		{
			...{ traceId: TRACE, spanId: ROOT, parentId: undefined, name: "invoke_agent Agent", kind: "internal" },
			...{ start: micros(1), end: micros(13), error: undefined, events: [] },
			attributes: {
				...{ ...common, "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "Agent" },
				...{ "gen_ai.request.model": "openai/m1", "gen_ai.provider.name": "openai" },
				...{ "conversations.status": "finished", "conversations.cost": 0.3, "conversations.gaps": 1 },
				"gen_ai.system_instructions": json({ type: "text", content: "Be brief." }),
				"gen_ai.input.messages": json(user),
				"gen_ai.output.messages": json(done),
			},
		},
		chat("r1", micros(4) - 1_500_000n, micros(4), {
			...{ ...model, ...counts(10), "gen_ai.response.finish_reasons": ["tool_call"] },
			"gen_ai.input.messages": json(user),
			"gen_ai.output.messages": json({
				...parts(...thought, call("c1", '{"command":"ls"}'), ...thought, call("c2", "{}")),
				finish_reason: "tool_call",
			}),
		}),
		chat("r2", micros(9), micros(11), {
			...{ ...model, ...counts(20), "gen_ai.response.finish_reasons": ["tool_call"], ...estimated },
			"gen_ai.input.messages": json(given("c2", "no"), given("c1", "a b")),
			"gen_ai.output.messages": json({ ...parts(...thought, call("c3", "{}")), finish_reason: "tool_call" }),
		}),
		chat(
			"r3",
			micros(11),
			micros(12),
			{
				...{ "gen_ai.request.model": "openai/m1", "gen_ai.provider.name": "openai", ...estimated },
				...{ "gen_ai.response.finish_reasons": ["stop"], "gen_ai.output.messages": json(done) },
			},
			"openai/m1",
		),
		// No event names it, so it is taken to have begun with the run.
		chat("title", micros(1), micros(1), { ...model, ...counts(1), ...estimated }),
		tool("c1", 4, 9, { "gen_ai.tool.call.arguments": '{"command":"ls"}', "gen_ai.tool.call.result": "a b" }),
		tool(
			"c2",
			4,
			6,
			{ "gen_ai.tool.call.arguments": "{}", "gen_ai.tool.call.result": "no" },
			{ type: "UserRejectObservation", message: "no" },
		),
		tool("c3", 11, 13, { "gen_ai.tool.call.arguments": "{}", "conversations.result_missing": true }),
		tool("lost", 13, 20, {
			...{ "gen_ai.tool.call.result": "late", "conversations.call_missing": true, ...estimated },
		}),
	]);
	expect(second?.spans).toMatchObject([
		{
			...{ start: micros(30), end: micros(32), error: { type: "Limit", message: "It was reached." } },
			attributes: { "conversations.status": "error", "conversations.cost": 0.5 },
		},
	]);
	expect(third?.spans).toMatchObject([
		{ start: micros(40), end: micros(40), attributes: { "conversations.end_missing": true } },
	]);
});

test("scores are events on the span of their event, or on the run that had begun when they were given", () => {
	const score = (eventId: string, name: string, value: JsonValue, second: number, comment = "") =>
		create(ScoreSchema, {
			...{ conversationId: "parent", eventId, name, value: toValue(value), comment, giver: "judge" },
			givenAt: fromMicroseconds(micros(second)),
		});
	const scores = [
		score("", "thumbs", false, 35, "It failed."),
		score("", "early", 1, 0),
		score("action c1", "helps", 0.5, 50),
		score("message 1", "clear", "yes", 50),
		score("unknown", "helps", 2, 45),
		score("result c1", "helps", -1, 50),
		score("rejected", "helps", 0, 50),
	];
	const attributes = (name: string, more: object) => ({
		...{ "gen_ai.evaluation.name": name, ...more },
		"conversations.score.giver": "judge",
	});
	const valued = (name: string, value: number, second: number, more: object = {}) => ({
		...{ name: "gen_ai.evaluation.result", at: micros(second) },
		attributes: attributes(name, { "gen_ai.evaluation.score.value": value, ...more }),
	});
	const clear = attributes("clear", { "gen_ai.evaluation.score.label": "yes" });
	const failed = { "gen_ai.evaluation.score.label": "false", "gen_ai.evaluation.explanation": "It failed." };
	const [first, second, third] = tracesOf(sourceOf(PARENT, { scores }));
	const eventsIn = (trace: RunTrace | undefined) =>
		trace?.spans.flatMap(({ spanId, events }) => (events.length === 0 ? [] : [[spanId, events]]));
	expect(eventsIn(first)).toEqual([
		[ROOT, [valued("early", 1, 0), { name: "gen_ai.evaluation.result", at: micros(50), attributes: clear }]],
		[idOf(16, "chat", "parent", "message 1", "r1", "0"), [valued("helps", 0.5, 50, { "gen_ai.response.id": "r1" })]],
		[idOf(16, "tool", "parent", "message 1", "c1"), [valued("helps", -1, 50)]],
		[idOf(16, "tool", "parent", "message 1", "c2"), [valued("helps", 0, 50)]],
	]);
	expect(eventsIn(second)).toEqual([[second?.spans[0]?.spanId, [valued("thumbs", 0, 35, failed)]]]);
	expect(eventsIn(third)).toEqual([[third?.spans[0]?.spanId, [valued("helps", 2, 45)]]]);
});

test.each([
	["no costs", [], {}],
	["a cost of 0", [{ timestamp: Number(micros(4)) / 1e6, cost: 0 }], { "conversations.cost": 0 }],
])("a run of a record with %s tells the cost that was reported", (_, costs, expected) => {
	const record: JsonObject = { agent: { kind: "Agent" }, stats: { usage_to_metrics: { agent: { costs } } } };
	const [first] = tracesOf(sourceOf({ ...PARENT, record }));
	const attributes = Object.entries(first?.spans[0]?.attributes ?? {}).filter(([name]) => name.endsWith(".cost"));
	expect(Object.fromEntries(attributes)).toEqual(expected);
});

test("two calls with one id have the results that name their actions", () => {
	const answered = (n: number, id: string, actionId: string) => ({
		...result(n, "same", text(id)),
		...{ id, action_id: actionId },
	});
	const calls = [4, 5].map((n) => ({ ...action(n, "same", `r${n}`), id: `action ${n}` }));
	const events = [
		message(1, "user", "Go."),
		...calls,
		answered(6, "of 5", "action 5"),
		answered(8, "of 4", "action 4"),
	];
	const [trace] = tracesOf(sourceOf({ id: "parent", record: undefined, events }));
	const tools = trace?.spans.filter(({ name }) => name === "execute_tool terminal") ?? [];
	expect(tools.map(({ start, end, attributes }) => [start, end, attributes["gen_ai.tool.call.result"]])).toEqual([
		[micros(4), micros(8), "of 4"],
		[micros(5), micros(6), "of 5"],
	]);
	expect(new Set(tools.map(({ spanId }) => spanId)).size).toBe(2);
});

test("a clock that is set back within a run leaves it whole, and no call and no result is missing", () => {
	const forward = [
		message(31, "user", "Go."),
		status(32, "running"),
		action(34, "c1", "r1"),
		result(36, "c1", text("a")),
		action(38, "c2", "r2"),
		result(40, "c2", text("b")),
		status(42, "finished"),
	].map((one, n, all) => ({ ...one, parent_id: String(all[n - 1]?.id ?? "__root__") }));
	const expected = tracesOf(sourceOf({ id: "parent", record: undefined, events: forward }));
	// From the first result on, the clock is 20 seconds behind.
	const events = forward.map((one, n) =>
		n < 3 ? one : { ...one, timestamp: String(event(16 + 2 * (n - 3), "", "", {}).timestamp) },
	);
	const traces = tracesOf(sourceOf({ id: "parent", record: undefined, events }));
	expect(traces).toHaveLength(1);
	const shapeOf = (all: readonly RunTrace[]) =>
		all.flatMap(({ spans }) =>
			spans.map(({ spanId, parentId, name, attributes }) => ({ spanId, parentId, name, attributes })),
		);
	expect(shapeOf(traces)).toEqual(shapeOf(expected));
	for (const { start, end } of traces[0]?.spans ?? []) expect(end >= start).toBe(true);
});

test("times outside of the range of OTLP are at its limits", async () => {
	for (const year of ["0001", "1969", "9999"]) {
		const events = EVENTS.map((one) => ({ ...one, timestamp: `${year}${String(one.timestamp).slice(4)}` }));
		const [body] = await otlpRequests(
			tracesOf(sourceOf({ id: "parent", record: undefined, events }))[0]?.spans ?? [],
			SENDER,
		);
		const times = Buffer.from(body ?? []).toString("hex");
		// The fields 7 and 8 of a span.
		const limit = year === "9999" ? "ff".repeat(8) : "00".repeat(8);
		expect(times).toContain(`39${limit}41${limit}`);
	}
});

test("without content, spans have no texts of people, models and tools", () => {
	const all = JSON.stringify(
		tracesOf(sourceOf(PARENT, { content: false })).map(({ spans }) => spans),
		(_, value) => (typeof value === "bigint" ? String(value) : value),
	);
	for (const word of ["Fix", "brief", "look", "because", "command", "a b", "Done", "late", "reached", "Again"])
		expect(all).not.toContain(word);
	expect(all).toContain("Limit");
});

test("a conversation that another one began is below the call that was under way, else below the run", () => {
	const parent = sourceOf(PARENT);
	const child = (begin: number) =>
		tracesOf(
			sourceOf(
				{ id: "child", record: undefined, events: [message(begin, "user", "Go."), status(begin + 1, "finished")] },
				{ parent },
			),
		)[0]?.spans[0];
	const placeAt = (begin: number) => [child(begin)?.traceId, child(begin)?.parentId];
	// Until the second call was refused, two calls were under way.
	expect(placeAt(5)).toEqual([TRACE, ROOT]);
	expect(placeAt(7)).toEqual([TRACE, idOf(16, "tool", "parent", "message 1", "c1")]);
	expect(placeAt(10)).toEqual([TRACE, ROOT]);
	expect(placeAt(0)).toEqual([idOf(32, "trace", "child", "message 0"), undefined]);
	const grandchild = sourceOf(
		{ id: "grandchild", record: undefined, events: [message(8, "user", "Go."), status(9, "finished")] },
		{
			parent: sourceOf(
				{ id: "child", record: undefined, events: [message(7, "user", "Go."), status(10, "finished")] },
				{ parent },
			),
		},
	);
	expect(tracesOf(grandchild)[0]?.spans[0]).toMatchObject({
		traceId: TRACE,
		parentId: idOf(16, "run", "child", "message 7"),
	});
});
