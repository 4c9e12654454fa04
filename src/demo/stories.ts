import type { JsonObject } from "@bufbuild/protobuf";

/** What happens in an invented conversation, for `--demo`. The forms are those of an agent server's events. */
export interface Story {
	readonly title: string;
	readonly model: string;
	readonly tags: Readonly<Record<string, string>>;
	readonly status: "finished" | "error" | "waiting_for_confirmation" | "paused";
	readonly steps: readonly Step[];
}

/** What happens together, some seconds after the step before. */
export interface Step {
	readonly seconds: number;
	/** Cost in dollars of the model's call that made the step. Undefined for a step without one. */
	readonly cost?: number;
	/** Events without id, time and parent. One with `llm_response_id: true` gets the id of the call's response. */
	readonly events: readonly JsonObject[];
}

const user = (text: string): Step => ({ seconds: 1, events: [message("user", text)] });
const agent = (text: string, seconds: number, cost: number): Step => ({
	seconds,
	cost,
	events: [{ ...message("assistant", text), llm_response_id: true }],
});

function message(role: "user" | "assistant", text: string): JsonObject {
	const source = role === "user" ? "user" : "agent";
	return { kind: "MessageEvent", source, llm_message: { role, content: [{ type: "text", text }] } };
}

interface Call {
	readonly tool: string;
	readonly action: JsonObject;
	readonly observation?: JsonObject;
	readonly risk?: "LOW" | "MEDIUM" | "HIGH";
	readonly thought?: string;
	readonly seconds: number;
	readonly cost: number;
}

/** A call of a tool, and what it returns, if it was made. */
function call({ tool, action, observation, risk = "LOW", thought, seconds, cost }: Call): Step {
	const made: JsonObject = {
		kind: "ActionEvent",
		source: "agent",
		thought: thought === undefined ? [] : [{ type: "text", text: thought }],
		action,
		tool_name: tool,
		tool_call_id: true,
		tool_call: { id: true, name: tool, arguments: JSON.stringify(action), origin: "completion" },
		llm_response_id: true,
		security_risk: risk,
	};
	const returned: JsonObject = { kind: "ObservationEvent", source: "environment", tool_name: tool, tool_call_id: true };
	return { seconds, cost, events: observation === undefined ? [made] : [made, { ...returned, observation }] };
}

function terminal(command: string, output: string, exitCode = 0, seconds = 4): Step {
	return call({
		tool: "terminal",
		action: { kind: "TerminalAction", command },
		observation: {
			kind: "TerminalObservation",
			command,
			exit_code: exitCode,
			content: [{ type: "text", text: output }],
			is_error: exitCode !== 0,
		},
		seconds,
		cost: 0.031,
	});
}

function edit(path: string, before: string, after: string, thought: string): Step {
	return call({
		tool: "file_editor",
		action: { kind: "FileEditorAction", command: "str_replace", path, old_str: before, new_str: after },
		observation: {
			kind: "FileEditorObservation",
			command: "str_replace",
			path,
			prev_exist: true,
			old_content: before,
			new_content: after,
			content: [{ type: "text", text: `The file ${path} has been edited.` }],
			is_error: false,
		},
		thought,
		seconds: 5,
		cost: 0.044,
	});
}

function failure(code: string, detail: string): Step {
	return { seconds: 3, events: [{ kind: "ConversationErrorEvent", source: "environment", code, detail }] };
}

/** The stories, in the order in which they are told. The first ones have ended when the demo begins. */
export const STORIES: readonly Story[] = [
	{
		title: "Explain why the nightly import is slow",
		model: "model-fast-5",
		tags: { repo: "importer", team: "data" },
		status: "finished",
		steps: [
			user("The nightly import takes four hours since last week. Please find out why."),
			terminal(
				"git log --since='10 days' --oneline -- src/import",
				"9f31c02 Validate each row\n51aa0be Log rejected rows",
			),
			terminal(
				"grep -n 'query(' src/import/validate.ts",
				"14:  const known = await query('SELECT 1 FROM customers WHERE id = $1', [row.customer])",
			),
			agent(
				"Each row asks the database for its customer since `9f31c02`: 2.1 million queries a night. One query for a batch of rows would do.",
				8,
				0.052,
			),
		],
	},
	{
		title: "Remove the unused login page",
		model: "model-large-4",
		tags: { repo: "web", team: "core" },
		status: "waiting_for_confirmation",
		steps: [
			user("Nobody uses the old login page any more. Please remove it."),
			terminal("grep -rn 'login-v1' web --include=*.ts | wc -l", "0"),
			call({
				tool: "terminal",
				action: { kind: "TerminalAction", command: "rm -rf web/login-v1" },
				thought: "Nothing refers to the page, so I can remove its folder.",
				risk: "HIGH",
				seconds: 4,
				cost: 0.038,
			}),
		],
	},
	{
		title: "Upgrade the payment library",
		model: "model-large-4",
		tags: { repo: "shop", team: "core" },
		status: "error",
		steps: [
			user("Upgrade the payment library to its newest version, and run the tests."),
			terminal("npm install payments@9", "added 4 packages, changed 11 packages"),
			terminal("npm test", "✗ refund: expected 20, received undefined\nTests  1 failed | 212 passed", 1, 12),
			failure("LLMRateLimitError", "The model's service answered 429 five times."),
		],
	},
	{
		title: "Fix the flaky test of the checkout",
		model: "model-large-4",
		tags: { repo: "shop", team: "core" },
		status: "finished",
		steps: [
			user("The test `checkout applies the coupon` fails about one time in ten. Find out why, and fix it."),
			terminal(
				"npx vitest run checkout --repeat 20",
				"✗ run 7: expected 80, received 100\nTests  1 failed | 19 passed",
				1,
				9,
			),
			terminal(
				"grep -n coupon src/checkout.test.ts",
				"41:  const coupon = await api.coupon(id)\n58:  expect(total).toBe(80)",
			),
			edit(
				"src/checkout.test.ts",
				"  const coupon = await api.coupon(id)\n",
				"  const coupon = await waitFor(() => api.coupon(id))\n",
				"The stub answers before the coupon is stored. The test must wait for it.",
			),
			terminal("npx vitest run checkout --repeat 100", "Tests  100 passed\nDuration  96.20 s", 0, 14),
			agent("The test waits for the coupon, and passed 100 times.", 5, 0.027),
		],
	},
];
