import type { ExactJson, ExactJsonObject } from "../../src/record/json/json-value.ts";

/** Bodies of a real sender, without members of no interest. Checked by test/transports/webhook/openapi.test.ts. */

const ACP_AGENT: ExactJsonObject = {
	kind: "ACPAgent",
	acp_command: ["/workspace/bin/python", "/workspace/bin/fake_acp.py"],
	acp_args: ["--name", "codex-acp", "--models", "config"],
	acp_server: "provider_b",
	acp_model: "fake-small-1",
	acp_prompt_timeout: 60,
};

/** A conversation that has started but has not run yet. */
export const STARTED: ExactJsonObject = {
	id: "048c31eb-670a-4b4a-ad4b-afd97508c3e8",
	workspace: { kind: "LocalWorkspace", working_dir: "/workspace/project/acp-full" },
	persistence_dir: "/workspace/conversations/048c31eb670a4b4aad4bafd97508c3e8",
	max_iterations: 500,
	execution_status: "idle",
	confirmation_policy: { kind: "NeverConfirm" },
	tags: { acp: "1" },
	agent: ACP_AGENT,
};

/** The same conversation after it ran to its end. */
export const FINISHED: ExactJsonObject = {
	...STARTED,
	execution_status: "finished",
	title: "hello acp",
	created_at: "2026-11-21T08:57:12.979605Z",
	updated_at: "2026-11-21T08:57:13.504942Z",
	current_model_id: "fake-small-1",
	stats: { usage_to_metrics: { "acp-managed": { model_name: "fake-small-1", accumulated_cost: 0.0421 } } },
};

/** A page of conversations with the finished one only. */
export const LISTED: ExactJsonObject = {
	conversations: [
		{
			sequence: 2,
			has_record: true,
			summary: {
				id: "048c31eb-670a-4b4a-ad4b-afd97508c3e8",
				title: "hello acp",
				execution_status: "finished",
				agent_kind: "ACPAgent",
				model: "fake-small-1",
				accumulated_cost: 0.0421,
				tokens: null,
				created_at: "2026-11-21T08:57:12.979605Z",
				updated_at: "2026-11-21T08:57:13.504942Z",
				tags: { acp: "1" },
				event_count: 0,
				sender: "agent-server",
				owner: "",
			},
		},
	],
	next_page_token: "",
	total_size: 1,
};

/** The response to a record without `workspace` and with `max_iterations: 0`. */
export const REFUSED: ExactJsonObject = {
	detail: [
		{ type: "missing", loc: ["body", "workspace"], msg: "Field required" },
		{
			type: "greater_than",
			loc: ["body", "max_iterations"],
			msg: "Input should be greater than 0",
			input: 0,
			ctx: { gt: 0 },
		},
	],
};

/** Events at the end of a run: the last message of the agent, and the status `finished`. The ids are made up. */
export const EVENTS: ExactJson[] = [
	{
		id: "5f0c1f0e-52a5-4b3c-9f5e-0d6a3c1b7e21",
		timestamp: "2026-11-21T08:55:31.377510",
		source: "agent",
		parent_id: "9b1d8f5a-6c1e-4f0e-8a37-2f4f5c1d9e10",
		llm_message: {
			role: "assistant",
			content: [{ cache_prompt: false, type: "text", text: "Hello from the fake model." }],
		},
		kind: "MessageEvent",
	},
	{
		id: "c4a7e2d3-0b8f-4d59-9e16-7a5b2c8d4f32",
		timestamp: "2026-11-21T08:55:31.379836",
		source: "environment",
		parent_id: "5f0c1f0e-52a5-4b3c-9f5e-0d6a3c1b7e21",
		key: "execution_status",
		value: "finished",
		kind: "ConversationStateUpdateEvent",
	},
];

/** A page with these events. */
export const LISTED_EVENTS: ExactJsonObject = {
	events: EVENTS.map((event, index) => ({
		sequence: index + 1,
		received_at: "2026-11-21T08:55:31.602118Z",
		happened_at: ["2026-11-21T08:55:31.377510Z", "2026-11-21T08:55:31.379836Z"][index] ?? "",
		sender: "agent-server",
		event,
	})),
	next_page_token: "",
};

/** The response to these events if the second one has no `kind`. */
export const EVENTS_REFUSED: ExactJsonObject = {
	detail: [{ type: "missing", loc: ["body", 1, "kind"], msg: "Field required" }],
};
