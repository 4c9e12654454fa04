import type { JsonObject } from "@bufbuild/protobuf";
import { KEY } from "../support/service.ts";

/** Invented conversations for pictures and tests of the console. */
export interface Sample {
	readonly id: string;
	readonly title: string | null;
	readonly status: string;
	readonly kind: "Agent" | "ACPAgent";
	readonly model: string;
	/** Costs of the calls, in order. */
	readonly costs: readonly number[];
	/** Minutes from the last activity to the present. */
	readonly minutesAgo: number;
	readonly tags?: Readonly<Record<string, string>>;
	readonly parent?: string;
	readonly forkedFrom?: string;
	readonly events: readonly SampleEvent[];
}

/** An event: its members, and the seconds since the one before it. */
export interface SampleEvent {
	readonly after: number;
	readonly members: JsonObject;
}

/** Returns the id of a sample. */
export function sampleId(number: number): string {
	return `5a3e1f00-0000-4000-8000-${String(number).padStart(12, "0")}`;
}

export function said(source: "user" | "agent", text: string, after = 5): SampleEvent {
	const role = source === "user" ? "user" : "assistant";
	return {
		after,
		members: { kind: "MessageEvent", source, llm_message: { role, content: [{ type: "text", text }] } },
	};
}

/** Returns a command in a terminal and its result. */
export function called(tool: string, input: string, output: string, seconds: number, number: number): SampleEvent[] {
	const observation = { kind: "TerminalObservation", content: [{ type: "text", text: output }], is_error: false };
	return acted(tool, { kind: "TerminalAction", command: input }, observation, seconds, number);
}

/**
 * Returns a call of a tool and its result, with the members of the agent server's own classes.
 *
 * @param observation undefined if the call has no result yet
 * @param more further members of the action's event
 */
export function acted(
	tool: string,
	action: JsonObject,
	observation: JsonObject | undefined,
	seconds: number,
	number: number,
	more: JsonObject = {},
): SampleEvent[] {
	const call = `call-${number}`;
	const id = `${String(number).padStart(8, "0")}-aaaa-4000-8000-000000000000`;
	const { kind: _, ...given } = action;
	return [
		{
			after: 6,
			members: {
				id,
				kind: "ActionEvent",
				source: "agent",
				thought: [],
				action,
				tool_name: tool,
				tool_call_id: call,
				tool_call: { id: call, name: tool, arguments: JSON.stringify(given), origin: "completion" },
				llm_response_id: `response-${number}`,
				...more,
			},
		},
		...(observation === undefined
			? []
			: [
					{
						after: seconds,
						members: {
							kind: "ObservationEvent",
							source: "environment",
							tool_name: tool,
							tool_call_id: call,
							action_id: id,
							observation,
						},
					},
				]),
	];
}

/** Returns an edit of a file, as the file editor reports it. */
export function edited(path: string, before: string, after: string, number: number): SampleEvent[] {
	const [oldLine = "", newLine = ""] = changedLines(before, after);
	return acted(
		"file_editor",
		{ kind: "FileEditorAction", command: "str_replace", path, old_str: oldLine, new_str: newLine },
		{
			kind: "FileEditorObservation",
			content: [{ type: "text", text: `The file ${path} has been edited.` }],
			is_error: false,
			command: "str_replace",
			path,
			prev_exist: true,
			old_content: before,
			new_content: after,
		},
		0.2,
		number,
	);
}

/** Returns the first line that differs, before and after. */
function changedLines(before: string, after: string): readonly (string | undefined)[] {
	const lines = after.split("\n");
	const index = before.split("\n").findIndex((line, at) => line !== lines[at]);
	return [before.split("\n")[index], lines[index]];
}

export function failed(code: string, detail: string, after = 20): SampleEvent {
	return {
		after,
		members: {
			kind: "ConversationErrorEvent",
			source: "environment",
			code,
			detail,
			classification: { kind: "context", retryable: true, user_action: null, error_id: null },
		},
	};
}

function hook(type: string, command: string): SampleEvent {
	return {
		after: 0.1,
		members: {
			kind: "HookExecutionEvent",
			source: "hook",
			hook_event_type: type,
			hook_command: command,
			success: true,
			blocked: false,
			exit_code: 0,
			stdout: "",
			stderr: "",
		},
	};
}

const LONG_OUTPUT = [
	"$ vitest run checkout --repeat 20",
	...Array.from({ length: 40 }, (_, index) => ` ✓ checkout applies the coupon, run ${index + 1} (${90 + index} ms)`),
	" ✗ checkout applies the coupon: expected 80, received 100",
	"Tests  2 failed | 38 passed",
].join("\n");

const CHECKOUT_TEST = [
	'import { expect, test } from "vitest";',
	'import { api } from "./api.ts";',
	"",
	'test("checkout applies the coupon", async () => {',
	"  const id = await api.createCoupon(20);",
	"  const coupon = await api.coupon(id);",
	"  const total = checkout(100, coupon);",
	"  expect(total).toBe(80);",
	"});",
	"",
].join("\n");

export const SAMPLES: readonly Sample[] = [
	{
		id: sampleId(1),
		title: "Fix the flaky test in checkout",
		status: "error",
		kind: "Agent",
		model: "model-large-4",
		costs: [0.04, 0.11, 0.32, 0.21, 0.84, 0.36, 0.74, 0.5],
		minutesAgo: 11,
		tags: { repo: "shop", team: "core" },
		events: [
			said(
				"user",
				"The test `checkout applies the coupon` fails about one time in ten. Find out why and fix it.\n\n- run it often\n- **do not** change the coupon service",
			),
			said("agent", "I will run the test a few times and look at how the coupon service is stubbed.", 7),
			...called("terminal", "npx vitest run checkout --repeat 20", LONG_OUTPUT, 48, 1),
			...called(
				"terminal",
				"grep -n coupon src/checkout.test.ts",
				"41:  const coupon = await api.coupon(id)\n58:  expect(total).toBe(80)",
				0.2,
				2,
			),
			hook("pre_tool_use", "lint.sh"),
			...edited(
				"src/checkout.test.ts",
				CHECKOUT_TEST,
				CHECKOUT_TEST.replace("await api", "await waitFor(() => api").replace("(id);", "(id));"),
				3,
			),
			...called("terminal", "npx vitest run checkout --repeat 100", "Tests  100 passed\nDuration  96.20 s", 97, 4),
			said(
				"agent",
				"The stub answered before the coupon was stored. The test now waits for it, and passed 100 times.",
				9,
			),
			failed("LLMContextWindowExceedError", "The prompt has 203,118 tokens, and the model takes 200,000."),
		],
	},
	{
		id: sampleId(2),
		title: "Migrate the billing tables to the new schema",
		status: "running",
		kind: "Agent",
		model: "model-large-4",
		costs: [0.31, 0.52, 0.22, 0.79],
		minutesAgo: 0,
		tags: { repo: "billing", team: "core" },
		events: [
			said("user", "Migrate the billing tables to the new schema, without downtime."),
			...called("terminal", "psql -f migrations/041_billing.sql", "ALTER TABLE\nCREATE INDEX", 12, 5),
			said("agent", "The first step is done. I backfill the new column in batches now."),
		],
	},
	{
		id: sampleId(3),
		title: "Remove the legacy login page",
		status: "waiting_for_confirmation",
		kind: "Agent",
		model: "model-fast-5",
		costs: [0.12, 0.25],
		minutesAgo: 2,
		events: [said("user", "Remove the legacy login page."), said("agent", "May I run: rm -rf web/login")],
	},
	{
		id: sampleId(4),
		title: null,
		status: "stuck",
		kind: "ACPAgent",
		model: "model-wide-3",
		costs: [0.4, 0.52],
		minutesAgo: 14,
		events: [said("user", "please look at why the nightly import is slow"), said("agent", "I read import.ts again.")],
	},
	{
		id: sampleId(5),
		title: "Add a dark mode to the settings",
		status: "finished",
		kind: "Agent",
		model: "model-fast-5",
		costs: [0.2, 0.46],
		minutesAgo: 26,
		tags: { repo: "web" },
		events: [said("user", "Add a dark mode to the settings."), said("agent", "The switch is there and is tested.")],
	},
	{
		id: sampleId(6),
		title: "Write the release notes for 4.2",
		status: "finished",
		kind: "ACPAgent",
		model: "model-deep-4",
		costs: [1.1, 1.3],
		minutesAgo: 41,
		events: [said("user", "Write the release notes for 4.2."), said("agent", "Here are the notes, by subject.")],
	},
	{
		id: sampleId(7),
		title: "Collect the merged changes since 4.1",
		status: "finished",
		kind: "ACPAgent",
		model: "model-deep-4",
		costs: [0.3],
		minutesAgo: 44,
		parent: sampleId(6),
		events: [said("user", "List all merged changes since 4.1.")],
	},
	{
		id: sampleId(8),
		title: "Upgrade the base image",
		status: "paused",
		kind: "Agent",
		model: "model-large-4",
		costs: [0.18],
		minutesAgo: 70,
		tags: { repo: "infra" },
		events: [said("user", "Upgrade the base image to the newest release."), pause()],
	},
	{
		id: sampleId(9),
		title: "Explain the retry logic of the queue",
		status: "finished",
		kind: "Agent",
		model: "model-mini-3",
		costs: [0.02],
		minutesAgo: 80,
		forkedFrom: sampleId(6),
		events: [said("user", "Explain the retry logic of the queue."), said("agent", "A job is retried three times.")],
	},
	{
		id: sampleId(10),
		title: null,
		status: "idle",
		kind: "Agent",
		model: "model-fast-5",
		costs: [],
		minutesAgo: 130,
		events: [said("user", "hello")],
	},
];

/** A conversation that runs, and has been silent for half an hour. */
export const SILENT: Sample = {
	id: sampleId(11),
	title: "Wait for the build of the image",
	status: "running",
	kind: "Agent",
	model: "model-fast-5",
	costs: [0.05],
	minutesAgo: 30,
	events: [said("user", "Wait for the build of the image, then deploy it.")],
};

/** Returns the first sample with other members. */
export function sampleWith(members: Partial<Sample>): Sample {
	const [sample] = SAMPLES;
	if (sample === undefined) throw new Error("there are samples");
	return { ...sample, ...members };
}

function pause(): SampleEvent {
	return { after: 3, members: { kind: "PauseEvent", source: "user" } };
}

/** Returns the record of a sample, as an agent server posts it. */
export function recordOf(sample: Sample, now = Date.now()): JsonObject {
	const ended = now / 1000 - sample.minutesAgo * 60;
	const length = sample.events.reduce((sum, { after }) => sum + after, 0);
	const step = length / Math.max(sample.costs.length, 1);
	const at = (index: number): number => ended - length + step * (index + 0.6);
	const tokens = (cost: number) => ({
		model: sample.model,
		prompt_tokens: Math.round(cost * 250_000),
		completion_tokens: Math.round(cost * 9_000),
		cache_read_tokens: Math.round(cost * 200_000),
		cache_write_tokens: Math.round(cost * 20_000),
		reasoning_tokens: Math.round(cost * 1_000),
		context_window: 200_000,
		per_turn_token: Math.min(199_120, Math.round(30_000 + cost * 200_000)),
		response_id: "",
	});
	const total = sample.costs.reduce((sum, cost) => sum + cost, 0);
	// A fork has what its source has, and calls of its own.
	const response = sample.forkedFrom === undefined ? "response" : "response-of-fork";
	const metrics = {
		model_name: sample.model,
		accumulated_cost: total,
		max_budget_per_task: null,
		accumulated_token_usage: tokens(total),
		costs: sample.costs.map((cost, index) => ({ model: sample.model, cost, timestamp: at(index) })),
		response_latencies: [],
		token_usages: sample.costs.map((cost, index) => ({ ...tokens(cost), response_id: `${response}-${index + 1}` })),
	};
	const llm = { model: sample.model, usage_id: "agent" };
	return {
		id: sample.id,
		title: sample.title,
		execution_status: sample.status,
		workspace: { kind: "LocalWorkspace", working_dir: "/workspace/shop" },
		agent:
			sample.kind === "Agent"
				? { kind: "Agent", llm, tools: [] }
				: { kind: "ACPAgent", acp_command: ["acp"], acp_model: sample.model },
		stats: { usage_to_metrics: { agent: metrics } },
		secret_registry: {
			secret_sources: {
				DEPLOY_TOKEN: { kind: "StaticSecret", value: "never-shown-in-the-console", description: null },
			},
		},
		tags: { ...sample.tags },
		created_at: new Date((ended - length) * 1000).toISOString(),
		updated_at: new Date(ended * 1000).toISOString(),
		parent_conversation_id: sample.parent ?? null,
		forked_from_conversation_id: sample.forkedFrom ?? null,
	};
}

/** Returns the events of a sample, as an agent server posts them. */
export function eventsOf(sample: Sample, now = Date.now()): JsonObject[] {
	const length = sample.events.reduce((sum, { after }) => sum + after, 0);
	let time = now - sample.minutesAgo * 60_000 - length * 1000;
	let parent: string | null = null;
	return sample.events.map(({ after, members }, index) => {
		time += after * 1000;
		const id =
			typeof members.id === "string" ? members.id : `${sample.id.slice(0, -4)}${String(1000 + index).padStart(4, "0")}`;
		const event: JsonObject = {
			id,
			timestamp: new Date(time).toISOString().replace("Z", ""),
			parent_id: parent,
			...members,
		};
		parent = id;
		return event;
	});
}

/** Posts a body to a webhook of the service. */
export async function post(http: string, path: string, body: string | JsonObject | readonly JsonObject[], key = KEY) {
	const response = await fetch(`${http}/api/v1/webhooks/${path}`, {
		method: "POST",
		headers: { "Content-Type": "application/json", "X-Access-Token": key },
		body: typeof body === "string" ? body : JSON.stringify(body),
	});
	if (!response.ok) throw new Error(`${path} was refused with ${response.status}: ${await response.text()}`);
}

/** Posts a sample: its events, and two versions of its record. */
export async function postSample(http: string, sample: Sample, key = KEY): Promise<void> {
	const record = recordOf(sample);
	await post(
		http,
		"conversations",
		{ ...record, execution_status: "running", updated_at: record.created_at ?? null },
		key,
	);
	await post(http, `events/${sample.id}`, eventsOf(sample), key);
	await post(http, "conversations", record, key);
}
