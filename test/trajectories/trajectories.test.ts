import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Ajv2020 } from "ajv/dist/2020.js";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { postWebhook } from "../support/clients.ts";
import { postEvents } from "../support/event-clients.ts";
import { capturedBatches, capturedSequences, object, record } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService, testEnvironment } from "../support/service.ts";
import { ROOT } from "../support/start-command.ts";

const [RED, BLUE] = ["key-of-the-red-readers", "key-of-the-blue-readers"];
const SCHEMA = new URL("../fixtures/atif-v1.8.schema.json", import.meta.url);
const validate = new Ajv2020({ strict: false }).compile(JSON.parse(readFileSync(SCHEMA, "utf8")));

let service: TestService;
/** Ids of events by conversation, in captured posts. */
const captured = new Map<string, Set<string>>();
const [PARENT, CHILD, FOREIGN, EMPTY] = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];

/** Returns the ids of the events in the body of a post. */
function idsIn(body: string): string[] {
	const events: JsonValue = JSON.parse(body);
	return [events].flat().map((event) => String(object(event).id));
}

async function sendEvents(id: string, body: string, key = KEY): Promise<void> {
	const answer = await postEvents(service, key, id, body);
	expect([answer.status, await answer.text()]).toEqual([200, '{"success":true}']);
	captured.set(id, (captured.get(id) ?? new Set()).union(new Set(idsIn(body))));
}

async function sendRecord(body: string, key = KEY): Promise<void> {
	expect((await postWebhook(service, key, body)).status).toBe(200);
}

const text = (value: string) => [{ type: "text", text: value }];
const at = (second: number) => `2026-03-01T10:00:${String(second).padStart(2, "0")}`;

function action(n: number, call: string, response: string, args: string): JsonObject {
	return {
		...{ id: `action ${call}`, timestamp: at(n), source: "agent", kind: "ActionEvent", tool_name: "terminal" },
		...{ tool_call_id: call, llm_response_id: response, thought: text("I look."), reasoning_content: "because" },
		tool_call: { id: call, name: "terminal", arguments: args, origin: "completion" },
		action: { kind: "TerminalAction" },
	};
}

function observation(n: number, call: string, content: JsonValue, isError = false): JsonObject {
	return {
		...{ id: `observation ${call}`, timestamp: at(n), source: "environment", kind: "ObservationEvent" },
		...{ tool_name: "terminal", tool_call_id: call, action_id: `action ${call}` },
		observation: { kind: "TerminalObservation", content, is_error: isError },
	};
}

const message = (n: number, role: string, content: JsonValue, more: JsonObject = {}): JsonObject => ({
	...{ id: `message ${n}`, timestamp: at(n), kind: "MessageEvent", source: role === "user" ? "user" : "agent" },
	...{ llm_message: { role, content }, ...more },
});

const EVENTS: readonly JsonObject[] = [
	{
		...{
			id: "prompt",
			timestamp: at(0),
			source: "agent",
			kind: "SystemPromptEvent",
			tools: [{ kind: "T", title: "terminal", description: "runs" }],
		},
		system_prompt: { type: "text", text: "Be brief." },
	},
	message(1, "user", [...text("Fix it."), { type: "image", image_urls: ["https://x/y.png"] }]),
	action(2, "c1", "r1", '{"command":"ls https://u:sk-canary@h/"}'),
	action(2, "c2", "r1", "no JSON"),
	{
		...{
			id: "rejected",
			timestamp: at(4),
			source: "environment",
			kind: "UserRejectObservation",
			tool_name: "terminal",
		},
		...{ tool_call_id: "c2", action_id: "action c2", rejection_reason: "no way" },
	},
	observation(9, "c1", text("a b")),
	action(11, "c3", "r2", "{}"),
	{ id: "paused", timestamp: at(12), source: "user", kind: "PauseEvent" },
	{
		id: "failed",
		timestamp: at(13),
		source: "environment",
		kind: "ConversationErrorEvent",
		code: "Limit",
		detail: "reached",
	},
	message(14, "assistant", text("Done."), { llm_response_id: "r3" }),
];

beforeAll(async () => {
	service = await startTestService({
		ACCESS_KEYS: `test:${KEY}:ingest+read,red:${RED}:ingest+read+score@red,blue:${BLUE}:ingest+read+score@blue`,
	});
	for (const { conversationId, posts } of capturedSequences())
		for (const { webhook, body } of posts)
			if (webhook === "events") await sendEvents(conversationId, body);
			else await sendRecord(body);
	const ids = new Map<string, string>();
	for (const { name, text: body } of capturedBatches())
		await sendEvents(
			ids.getOrInsertComputed(name.replace(/-batch\d+$/, ""), () => randomUUID()),
			body,
		);

	const usage = {
		model: "m2",
		prompt_tokens: 10,
		completion_tokens: 2,
		cache_read_tokens: 4,
		reasoning_tokens: 1,
		response_id: "r1",
	};
	const metrics = {
		accumulated_cost: 0.5,
		accumulated_token_usage: { ...usage, response_id: "" },
		token_usages: [usage],
	};
	const agent = { kind: "Agent", llm: { model: "m1" } };
	const times = { created_at: `${at(0)}Z`, updated_at: `${at(20)}Z` };
	const parent = { id: PARENT, title: "T", agent, tags: { team: "a" }, execution_status: "finished", ...times };
	await sendRecord(JSON.stringify(record({ ...parent, stats: { usage_to_metrics: { agent: metrics } } })), RED);
	await sendEvents(PARENT, JSON.stringify(EVENTS), RED);
	const child = { agent, parent_conversation_id: PARENT, created_at: `${at(5)}Z`, updated_at: `${at(6)}Z` };
	await sendRecord(JSON.stringify(record({ id: CHILD, ...child })), RED);
	await sendEvents(CHILD, JSON.stringify([message(6, "user", text("canary-red"))]), RED);
	await sendRecord(JSON.stringify(record({ id: FOREIGN, ...child })), BLUE);
	await sendEvents(FOREIGN, JSON.stringify([message(6, "user", text("canary-blue"))]), BLUE);
	await sendRecord(JSON.stringify(record({ id: EMPTY, ...times })));
	// Results of critics become scores soon after their post, in the order of the posts.
	const read = async (path: string) => {
		const response = await fetch(`${service.http}/api/v1/${path}`, { headers: { "X-Access-Token": KEY } });
		return object(await response.json());
	};
	const [last] = list((await read(`conversations/${FOREIGN}/events`)).events);
	const isRead = async () => expect((await read("search?query=x")).indexed_through_sequence).toBe(last?.sequence);
	await vi.waitFor(isRead, { timeout: 30_000 });
});

afterAll(() => service[Symbol.asyncDispose]());

async function get(id: string, query = "", key = KEY): Promise<[number, string]> {
	const headers = { "X-Access-Token": key };
	const response = await fetch(`${service.http}/api/v1/conversations/${id}/trajectory${query}`, { headers });
	return [response.status, await response.text()];
}

function list(json: JsonValue | undefined): JsonObject[] {
	return (Array.isArray(json) ? json : []).map((item) => object(item));
}

/** Checks the rules of the format that a JSON Schema cannot express. */
function checkRules(trajectory: JsonObject): void {
	const steps = list(trajectory.steps);
	expect(steps.map(({ step_id }) => step_id)).toEqual(steps.map((_, n) => n + 1));
	const children = list(trajectory.subagent_trajectories);
	const ids = children.map(({ trajectory_id }) => trajectory_id);
	expect(new Set(ids).size).toBe(ids.length);
	for (const step of steps) {
		const calls = new Set(list(step.tool_calls).map(({ tool_call_id }) => tool_call_id));
		const results = step.observation === undefined ? [] : list(object(step.observation).results);
		for (const { source_call_id: id } of results) expect(id === undefined || calls.has(id)).toBe(true);
		for (const result of results)
			for (const { trajectory_id } of list(result.subagent_trajectory_ref)) expect(ids).toContain(trajectory_id);
		const ofAgents = ["model_name", "reasoning_content", "tool_calls", "metrics", "llm_call_count"];
		if (step.source !== "agent") expect(Object.keys(step).filter((name) => ofAgents.includes(name))).toEqual([]);
		expect(Number.isNaN(Date.parse(String(step.timestamp)))).toBe(false);
	}
	for (const child of children) checkRules(child);
}

test("the trajectory of each captured conversation is valid, and accounts for each event", async () => {
	let steps = 0;
	for (const [id, events] of captured) {
		const [status, body] = await get(id);
		if (status === 404) {
			expect(body).toBe('{"detail":"No event of this conversation makes a step of a trajectory"}');
			continue;
		}
		expect(status).toBe(200);
		const trajectory = object(JSON.parse(body));
		expect([id, validate(trajectory), validate.errors]).toEqual([id, true, null]);
		checkRules(trajectory);
		const shown = list(trajectory.steps).flatMap(({ extra }) => [object(extra ?? null).event_ids].flat());
		steps += shown.length;
		const leftOut = Object.entries(object(object(trajectory.extra).left_out))
			.filter(
				([name]) => !name.startsWith("content of") && name !== "results_of_calls" && !name.startsWith("subagents"),
			)
			.reduce((sum, [, count]) => sum + Number(count), 0);
		expect(new Set(shown).size).toBe(shown.length);
		expect(new Set(shown.map(String)).isSubsetOf(events)).toBe(true);
		expect(shown.length + leftOut).toBe(events.size);
		expect(await get(id)).toEqual([200, body]);
	}
	expect(steps).toBeGreaterThan(200);
});

test("the messages of each captured conversation are a chat in which each call is answered at once", async () => {
	for (const id of captured.keys()) {
		const [status, body] = await get(id, "?form=messages");
		if (status === 404) continue;
		const messages = list(object(JSON.parse(body)).messages);
		let open: unknown[] = [];
		for (const { role, content, tool_calls, tool_call_id } of messages) {
			expect(typeof content).toBe("string");
			if (role === "tool") expect(tool_call_id).toBe(open.shift());
			else {
				expect(open).toEqual([]);
				open = list(tool_calls).map((call) => call.id);
			}
		}
		expect(open).toEqual([]);
	}
});

const STEPS: readonly JsonObject[] = [
	{ source: "system", message: "Be brief.", extra: { event_ids: ["prompt"] } },
	{ source: "user", message: "Fix it.", extra: { event_ids: ["message 1"] } },
	{
		...{ source: "agent", message: "I look.", model_name: "m2", reasoning_content: "because", llm_call_count: 1 },
		metrics: {
			...{ prompt_tokens: 10, completion_tokens: 2, cached_tokens: 4 },
			extra: { cache_write_tokens: 0, reasoning_tokens: 1 },
		},
		tool_calls: [
			{ tool_call_id: "c1", function_name: "terminal", arguments: { command: "ls https://****@h/" } },
			{ tool_call_id: "c2", function_name: "terminal", arguments: {}, extra: { raw_arguments: "no JSON" } },
		],
		observation: {
			results: [
				{ source_call_id: "c2", content: "no way", extra: { is_error: true, kind: "UserRejectObservation" } },
				{
					...{ source_call_id: "c1", content: "a b", extra: { is_error: false } },
					subagent_trajectory_ref: [{ trajectory_id: CHILD, session_id: CHILD }],
				},
			],
		},
		extra: { event_ids: ["action c1", "action c2", "rejected", "observation c1"] },
	},
	{
		...{ source: "agent", message: "I look.", reasoning_content: "because", llm_call_count: 1 },
		tool_calls: [{ tool_call_id: "c3", function_name: "terminal", arguments: {} }],
		extra: { event_ids: ["action c3"] },
	},
	{ source: "system", message: "Limit: reached", extra: { kind: "ConversationErrorEvent", event_ids: ["failed"] } },
	{ source: "agent", message: "Done.", llm_call_count: 1, extra: { event_ids: ["message 14"] } },
];

test("a trajectory has the steps, calls, results, metrics and sub-agents of its conversation", async () => {
	const [status, body] = await get(PARENT, "", RED);
	expect(status).toBe(200);
	expect(body).not.toContain("sk-canary");
	const trajectory = object(JSON.parse(body));
	expect([validate(trajectory), validate.errors]).toEqual([true, null]);
	const { steps, subagent_trajectories: children, ...rest } = trajectory;
	const times = [0, 1, 2, 11, 13, 14];
	expect(JSON.parse(JSON.stringify(steps).replace(/https:\/\/\*+@/, "https://****@"))).toEqual(
		STEPS.map((step, n) => ({ step_id: n + 1, timestamp: `${at(times[n] ?? 0)}Z`, ...step })),
	);
	expect(rest).toEqual({
		...{ schema_version: "ATIF-v1.8", session_id: PARENT, trajectory_id: PARENT },
		agent: {
			...{ name: "Agent", version: "unknown", model_name: "m1" },
			tool_definitions: [{ type: "function", function: { name: "terminal", description: "runs" } }],
		},
		notes: "extra.left_out counts what this trajectory leaves out.",
		final_metrics: {
			...{
				total_prompt_tokens: 10,
				total_completion_tokens: 2,
				total_cached_tokens: 4,
				total_cost_usd: 0.5,
				total_steps: 6,
			},
			extra: { cache_write_tokens: 0, reasoning_tokens: 1 },
		},
		extra: {
			...{ title: "T", execution_status: "finished", tags: { team: "a" } },
			left_out: { "content of type image": 1, PauseEvent: 1, results_of_calls: 1 },
		},
	});
	expect(list(children).map(({ trajectory_id }) => trajectory_id)).toEqual([CHILD]);
	// Its record has no stats.
	expect(list(children).map(({ final_metrics }) => final_metrics)).toEqual([{ total_steps: 1 }]);
	expect(body).toContain("canary-red");
	expect(body).not.toContain("canary-blue");
	// A key without an owner sees both, and two sub-agents began during the call.
	const [, whole] = await get(PARENT);
	expect(
		list(object(JSON.parse(whole)).subagent_trajectories)
			.map(({ trajectory_id }) => trajectory_id)
			.sort(),
	).toEqual([CHILD, FOREIGN].sort());
});

test("its messages leave out a call without a result, and errors", async () => {
	const [, body] = await get(PARENT, "?form=messages", RED);
	const { messages, tools, metadata } = object(JSON.parse(body));
	const call = (id: string, args: unknown) => ({
		id,
		type: "function",
		function: { name: "terminal", arguments: args },
	});
	expect(messages).toEqual([
		{ role: "system", content: "Be brief." },
		{ role: "user", content: "Fix it." },
		{
			...{ role: "assistant", content: "I look.", reasoning_content: "because" },
			tool_calls: [
				call("c1", expect.stringMatching(/^\{"command":"ls https:\/\/\*+@h\/"\}$/)),
				{ ...call("c2", "no JSON"), raw_arguments: true },
			],
		},
		{ role: "tool", tool_call_id: "c1", content: "a b" },
		{ role: "tool", tool_call_id: "c2", content: "no way" },
		{ role: "assistant", content: "I look.", reasoning_content: "because" },
		{ role: "assistant", content: "Done." },
	]);
	expect(tools).toEqual([{ type: "function", function: { name: "terminal", description: "runs" } }]);
	expect(metadata).toEqual({
		...{ conversation_id: PARENT, model: "m1" },
		left_out: {
			...{ "content of type image": 1, PauseEvent: 1, results_of_calls: 1 },
			...{ calls_without_result: 1, errors: 1, subagents: 1 },
		},
	});
});

test("a trajectory is refused without steps, of another owner, and in an unknown form", async () => {
	expect(await get(EMPTY)).toEqual([404, '{"detail":"No event of this conversation makes a step of a trajectory"}']);
	expect(await get(PARENT, "", BLUE)).toEqual([404, '{"detail":"There is no such conversation"}']);
	expect(await get(PARENT, "?form=csv")).toEqual([400, '{"detail":"form must be one of atif, messages"}']);
	expect((await get("no-uuid"))[0]).toBe(400);
});

test("scores are in the step of their event, and in the trajectory if no step has it", async () => {
	const give = async (key: string, scores: readonly JsonObject[]) => {
		const answer = await fetch(`${service.http}/api/v1/scores`, {
			method: "POST",
			headers: { "X-Access-Token": key, "Content-Type": "application/json" },
			body: JSON.stringify({ scores }),
		});
		expect([answer.status, await answer.json()]).toEqual([200, { changed: scores.length }]);
	};
	await give(RED, [
		{ conversation_id: PARENT, name: "thumbs", value: false, comment: "see https://u:sk-canary@h/", source: "person" },
		{ conversation_id: PARENT, name: "cause", value: "tool" },
		{ conversation_id: PARENT, event_id: "paused", name: "helps", value: 0.5 },
		{ conversation_id: PARENT, event_id: "rejected", name: "helps", value: 0 },
		{ conversation_id: PARENT, event_id: "action c2", name: "helps", value: 1 },
		{ conversation_id: CHILD, event_id: "message 6", name: "helps", value: 0.25 },
	]);
	await give(BLUE, [{ conversation_id: FOREIGN, name: "cause", value: "canary-blue-score" }]);
	const score = (event_id: string | null, name: string, value: JsonValue, more: JsonObject = {}) => ({
		...{ conversation_id: PARENT, event_id, name, value, comment: null, source: "program", giver: "red" },
		...{ given_at: expect.any(String), ...more },
	});
	const ofRun = [
		score(null, "cause", "tool"),
		score(null, "thumbs", false, { comment: "see https://**********@h/", source: "person" }),
		score("paused", "helps", 0.5),
	];
	const ofStep = [score("action c2", "helps", 1), score("rejected", "helps", 0)];
	const ofChild = score("message 6", "helps", 0.25, { conversation_id: CHILD });

	const [, body] = await get(PARENT, "", RED);
	const trajectory = object(JSON.parse(body));
	expect([validate(trajectory), validate.errors]).toEqual([true, null]);
	const scoresOf = ({ extra = null }: JsonObject) => object(extra).scores;
	expect(scoresOf(trajectory)).toEqual(ofRun);
	expect(list(trajectory.steps).map(scoresOf)).toEqual([undefined, undefined, ofStep, undefined, undefined, undefined]);
	const [child] = list(trajectory.subagent_trajectories);
	expect(list(child?.steps).map(scoresOf)).toEqual([[ofChild]]);
	expect(body).not.toContain("canary-blue-score");
	expect((await get(PARENT, "", RED))[1]).toBe(body);
});

test("the command exports the same, beside a running service and without one", async () => {
	const run = (...args: string[]) =>
		promisify(execFile)(process.execPath, ["dist/main.js", "export", "-", "--format", "trajectories", ...args], {
			...{ cwd: ROOT, env: testEnvironment(service.database), maxBuffer: 2 ** 28 },
		});
	const ids = [PARENT, CHILD, EMPTY];
	const filter = ["--filter", ids.map((id) => `id=${id}`).join("&")];
	const expected = new Set([(await get(PARENT))[1], (await get(CHILD))[1]]);
	const chats = new Set([(await get(PARENT, "?form=messages"))[1], (await get(CHILD, "?form=messages"))[1]]);
	const all = await run();
	expect(all.stdout.trim().split("\n").length).toBeGreaterThan(50);
	const beside = await run(...filter);
	expect(new Set(beside.stdout.trim().split("\n"))).toEqual(expected);
	expect(beside.stderr).toBe("- has the trajectories of 2 conversations; 1 have no step, 0 cannot be read.\n");
	await service.stop();
	expect((await run(...filter)).stdout).toBe(beside.stdout);
	expect((await run()).stdout).toBe(all.stdout);
	expect(new Set((await run(...filter, "--form", "messages")).stdout.trim().split("\n"))).toEqual(chats);
	await expect(run("--form", "csv")).rejects.toMatchObject({ code: 2 });
	await expect(run("--all")).rejects.toMatchObject({ code: 2 });
});
