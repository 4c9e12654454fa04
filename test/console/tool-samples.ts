import type { JsonObject } from "@bufbuild/protobuf";
import { acted, edited, type Sample, type SampleEvent, said, sampleId } from "./samples.ts";

/** Invented conversations with each kind of tool, whose members are those of the agent server's classes. */

/** Id of the conversation that {@link EVERY_TOOL} begins, and its parent. */
const PARENT = sampleId(801);
export const CHILD: Sample = {
	id: sampleId(802),
	title: "Read the migrations of the billing tables",
	status: "finished",
	kind: "Agent",
	model: "model-mini-3",
	costs: [0.2, 0.05],
	minutesAgo: 3,
	parent: PARENT,
	events: [said("user", "Read migrations/ and list what is dangerous."), said("agent", "Two of them drop a column.")],
};

/** A picture of one point. */
const PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

function result(kind: string, text: string, more: JsonObject = {}): JsonObject {
	return { kind, content: [{ type: "text", text }], is_error: false, ...more };
}

function event(kind: string, members: JsonObject, after = 1): SampleEvent {
	return { after, members: { kind, source: "environment", ...members } };
}

/** The output of a program with colours, a line that was written over, and many lines. */
const COLOURED = [
	"\u001b[1m\u001b[36m RUN \u001b[39m\u001b[22m v5.1.1 /workspace/billing",
	"10 %\r55 %\r100 %",
	...Array.from({ length: 30 }, (_, index) => ` \u001b[32m✓\u001b[39m migration ${index + 1} (${12 + index} ms)`),
	' \u001b[31m✗\u001b[39m migration 41: column \u001b[1m"vat"\u001b[22m does not exist',
	"\u001b[31mTests  1 failed\u001b[39m | \u001b[32m30 passed\u001b[39m",
].join("\n");

const MIGRATION = ["ALTER TABLE invoices ADD COLUMN vat numeric;", "UPDATE invoices SET vat = 0;", ""].join("\n");

export const EVERY_TOOL: Sample = {
	id: PARENT,
	title: "Migrate the billing tables with each tool",
	status: "waiting_for_confirmation",
	kind: "Agent",
	model: "model-large-4",
	costs: [0.31, 0.12, 0.22, 0.09, 0.4, 0.2, 0.05, 0.11],
	minutesAgo: 2,
	tags: { repo: "billing" },
	events: [
		{
			after: 1,
			members: {
				kind: "MessageEvent",
				source: "user",
				llm_message: {
					role: "user",
					content: [
						{
							type: "text",
							text: "Migrate the **billing tables**, see [the plan](https://plans.example/billing).\n\n| table | rows |\n|---|--:|\n| invoices | 41,000 |\n| items | 380,000 |\n\n```sql\nSELECT count(*) FROM invoices;\n```",
						},
						{ type: "image", image_urls: [`data:image/png;base64,${PICTURE}`] },
					],
				},
			},
		},
		event("ConversationStateUpdateEvent", { key: "execution_status", value: "running" }, 0.1),
		event("ConversationStateUpdateEvent", {
			key: "goal",
			value: {
				active: true,
				status: "running",
				iteration: 1,
				max_iterations: 5,
				objective: "All migrations run in the staging database.",
				verdict: { score: 0.6, complete: false, missing: "The index of the items is not there." },
			},
		}),
		...acted(
			"task_tracker",
			{
				kind: "TaskTrackerAction",
				command: "plan",
				task_list: [
					{ title: "Read the old migrations", notes: "", status: "done" },
					{ title: "Write migration 41", notes: "without downtime", status: "in_progress" },
					{ title: "Remove the old column", notes: "", status: "todo" },
				],
			},
			result("TaskTrackerObservation", "Task list has been updated with 3 items.", { command: "plan", task_list: [] }),
			0.1,
			811,
			{
				reasoning_content: "First I **plan**, then I delegate the reading.",
				thought: [{ type: "text", text: "I begin with a plan." }],
			},
		),
		...acted(
			"start_child_conversation",
			{
				kind: "StartChildConversationAction",
				task: "Read migrations/ and list what is dangerous.",
				title: "Read the migrations",
				isolation: "worktree",
			},
			result("StartChildConversationObservation", "Started.", {
				conversation_id: CHILD.id,
				parent_conversation_id: PARENT,
				status: "running",
				title: "Read the migrations",
				isolation: "worktree",
			}),
			1.5,
			812,
		),
		...acted(
			"delegate",
			{
				kind: "DelegateAction",
				command: "delegate",
				tasks: {
					cleaner: "DELETE the legacy table in production",
					reviewer: "Check that no service reads the column `vat_old`.",
				},
			},
			result("DelegateObservation", "cleaner: refused, it has no access.\nreviewer: two services read it.", {
				command: "delegate",
			}),
			41,
			813,
			{ security_risk: "MEDIUM" },
		),
		...edited(
			"migrations/041_billing.sql",
			MIGRATION,
			MIGRATION.replace("numeric;", "numeric NOT NULL DEFAULT 0;"),
			814,
		),
		...acted(
			"terminal",
			{ kind: "TerminalAction", command: "npm run migrate -- --target staging", is_input: false },
			result("TerminalObservation", COLOURED, { command: "npm run migrate -- --target staging", exit_code: 1 }),
			62,
			815,
		),
		...acted(
			"browser_navigate",
			{ kind: "BrowserNavigateAction", url: "https://staging.example/invoices?page=2", new_tab: false },
			result("BrowserObservation", "Navigated to the invoices.", { screenshot_data: PICTURE }),
			3,
			816,
		),
		...acted(
			"linear_create_issue",
			{
				kind: "MCPToolAction",
				data: { title: "Column vat is missing", labels: ["billing", "bug"], description: "Two lines\nof text" },
			},
			result("MCPToolObservation", "Created BIL-17", { tool_name: "linear_create_issue" }),
			0.8,
			817,
		),
		...acted(
			"think",
			{ kind: "ThinkAction", thought: "The default has to come first." },
			result("ThinkObservation", "Your thought has been logged."),
			0,
			818,
		),
		event("Condensation", {
			forgotten_event_ids: ["a-1", "a-2", "a-3"],
			summary: "The plan has three tasks, and the child found two dangerous migrations.",
			summary_offset: 2,
			llm_response_id: "response-819",
		}),
		event("HookExecutionEvent", {
			source: "hook",
			hook_event_type: "PreToolUse",
			hook_command: "guard.sh",
			success: true,
			blocked: true,
			exit_code: 2,
			stderr: "rm -rf is not allowed here",
			reason: "policy",
		}),
		{
			after: 4,
			members: {
				kind: "MessageEvent",
				source: "agent",
				llm_message: { role: "assistant", content: [{ type: "text", text: "I remove the legacy table now." }] },
				critic_result: { score: 0.35, message: "The agent did not ask before it deletes.", metadata: null },
				llm_response_id: "response-820",
			},
		},
		...acted(
			"terminal",
			{ kind: "TerminalAction", command: "rm -rf legacy && psql -c 'DROP TABLE legacy'", is_input: false },
			undefined,
			0,
			821,
			{ security_risk: "HIGH" },
		),
		event(
			"SecurityAnalysisEvent",
			{
				analyzer: "LLMSecurityAnalyzer",
				policy: "ConfirmRisky",
				risks: { "00000821-aaaa-4000-8000-000000000000": "HIGH" },
			},
			0.1,
		),
		event("ConversationStateUpdateEvent", { key: "execution_status", value: "waiting_for_confirmation" }, 0.1),
	],
};
