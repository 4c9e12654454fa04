import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { ConversationEventEntry } from "../../../../gen/conversations/v1/conversation_event_service_pb.js";
import {
	contentParts,
	facts,
	folded,
	type Json,
	listOf,
	Members,
	objectOf,
	type Part,
	textOf,
	textPart,
	valueParts,
} from "./parts.ts";
import { lookOfCall, STARTS_CHILDREN, type ToolLook } from "./tools.ts";

/** The steps of a conversation, as the timeline shows them: an action and its observation are one step. */

/** Key of the state that is the status of a conversation. */
const STATUS = "execution_status";

/** Kind of the events with which an ACP agent reports the progress of a tool call. */
const TOOL_CALL = "ACPToolCallEvent";

/** Members of every event that the timeline shows elsewhere, or that are of no interest to a person. */
const COMMON = ["id", "kind", "timestamp", "source", "parent_id"];

/** An event with its members parsed. */
export interface ParsedEvent {
	readonly sequence: bigint;
	readonly id: string;
	readonly kind: string;
	readonly source: string;
	readonly parentId: string | undefined;
	/** Milliseconds of Unix time. */
	readonly time: number;
	readonly members: Json;
	readonly unreadable: boolean;
}

/** What is known of a step without looking at its texts: there are many steps, and few are in view. */
export interface Step {
	/** Id of the step's first event. */
	readonly id: string;
	readonly sequence: bigint;
	readonly look: "user" | "agent" | "tool" | "hook" | "error" | "state" | "other";
	readonly time: number;
	/** Milliseconds from the action to its observation; undefined where it is not known, or does not apply. */
	readonly duration: number | undefined;
	readonly failed: boolean;
	/** Whether a call of a tool has no result. */
	readonly isOpen: boolean;
	/** What the agent or an analyzer says of the risk of the step, such as HIGH; empty if it is not known. */
	readonly risk: string;
	/** Id of the model's response that asked for the step. */
	readonly responseId: string | undefined;
	/** The events of the step. */
	readonly events: readonly ParsedEvent[];
}

/** Whether a step only reports a part of the state other than the status. There are many of them, of little interest. */
export function isMinor({ events }: Step): boolean {
	return events.every(
		({ kind, members }) => kind === "ConversationStateUpdateEvent" && members.key !== STATUS && members.key !== "goal",
	);
}

export function parseEntry(entry: ConversationEventEntry): ParsedEvent {
	const { event, happenedAt, receivedAt, sequence, unreadable } = entry;
	const time = happenedAt ?? receivedAt;
	return {
		sequence,
		id: event?.id ?? `#${sequence}`,
		kind: event?.kind ?? "unreadable",
		source: event?.source ?? "",
		parentId: event?.parentId,
		time: time === undefined ? 0 : timestampDate(time).getTime(),
		members: parseMembers(event?.membersJson ?? ""),
		unreadable,
	};
}

function parseMembers(text: string): Json {
	if (text === "") return {};
	return objectOf(JSON.parse(text)) ?? {};
}

/**
 * Returns the id of the action that an event is the result of. A hook names the action that it runs for, and is no
 * result of it.
 */
export function actionOf({ kind, members }: ParsedEvent): string | undefined {
	return kind === "HookExecutionEvent" ? undefined : textOf(members.action_id) || undefined;
}

/** Returns the id of the tool call whose progress an event of an ACP agent reports. */
export function toolCallOf({ kind, members }: ParsedEvent): string | undefined {
	return kind === TOOL_CALL ? textOf(members.tool_call_id) : undefined;
}

/** Returns the status that an event reports; undefined if it reports none. */
export function statusOf({ kind, members }: ParsedEvent): string | undefined {
	return kind === "ConversationStateUpdateEvent" && members.key === STATUS ? textOf(members.value) : undefined;
}

/**
 * Returns the step of events.
 *
 * @param events an event and its results, or all reports of a tool call
 */
export function stepOf(events: readonly ParsedEvent[]): Step {
	const [first] = events;
	if (first === undefined) throw new TypeError("a step has an event");
	const last = events.at(-1) ?? first;
	const isCall = first.kind === "ActionEvent" || first.kind === TOOL_CALL;
	const risk = textOf(first.members.security_risk);
	return {
		id: first.id,
		sequence: first.sequence,
		look: lookOf(first),
		time: first.time,
		duration: isCall && events.length > 1 ? last.time - first.time : undefined,
		failed: first.unreadable || hasFailed(first, last),
		isOpen:
			first.kind === TOOL_CALL
				? ["pending", "in_progress"].includes(textOf(last.members.status))
				: isCall && events.length === 1,
		risk: risk === "UNKNOWN" ? "" : risk,
		responseId: textOf(first.members.llm_response_id) || undefined,
		events,
	};
}

function lookOf({ kind, source, unreadable }: ParsedEvent): Step["look"] {
	if (unreadable || kind.endsWith("ErrorEvent")) return "error";
	switch (kind) {
		case "MessageEvent":
			return source === "user" ? "user" : "agent";
		case "ActionEvent":
		case "ObservationEvent":
		case TOOL_CALL:
			return "tool";
		case "HookExecutionEvent":
			return "hook";
		case "PauseEvent":
		case "InterruptEvent":
		case "ConversationStateUpdateEvent":
			return "state";
		default:
			return "other";
	}
}

/** Whether a step failed: an error, a result that says so, a command with an exit code, or a hook that blocked. */
function hasFailed(first: ParsedEvent, last: ParsedEvent): boolean {
	if (last.kind.endsWith("ErrorEvent")) return true;
	if (first.kind === "HookExecutionEvent") return first.members.success === false || first.members.blocked === true;
	if (last.kind === TOOL_CALL) return last.members.is_error === true || last.members.status === "failed";
	const observation = objectOf(last.members.observation);
	return observation?.is_error === true || (exitCodeOf(observation) ?? 0) > 0;
}

/** Returns with which exit code a command ended; undefined if it did not end, or this is no command. */
function exitCodeOf(observation: Json | undefined): number | undefined {
	const code = observation?.exit_code ?? objectOf(observation?.metadata)?.exit_code;
	// A terminal says -1 of a command that still runs.
	return typeof code === "number" && code >= 0 ? code : undefined;
}

/** What a step shows. */
export interface StepLook extends ToolLook {
	/** Short words beside the title. */
	readonly tags: readonly StepTag[];
	/** Ids of the conversations that the step began, as far as its result tells them. */
	readonly children: readonly string[];
}

export interface StepTag {
	readonly word: string;
	readonly kind: "failed" | "risk" | "plain";
}

const shown = new WeakMap<Step, StepLook>();

/** Returns what a step shows. It is computed when it is asked for first, because few steps come into view. */
export function lookOfStep(step: Step): StepLook {
	const before = shown.get(step);
	if (before !== undefined) return before;
	const [first, ...results] = step.events;
	const look = first === undefined ? plainLook("") : eventLook(first, results, step);
	shown.set(step, look);
	return look;
}

function plainLook(title: string, parts: readonly Part[] = [], more: Partial<StepLook> = {}): StepLook {
	return { title, subject: "", parts, tags: [], children: [], ...more };
}

function eventLook(event: ParsedEvent, results: readonly ParsedEvent[], step: Step): StepLook {
	const { kind } = event;
	const members = new Members(event.members, ...COMMON);
	if (event.unreadable) return plainLook("This event cannot be read", members.rest());
	switch (kind) {
		case "MessageEvent":
			return messageLook(event, members);
		case "SystemPromptEvent": {
			const prompt = contentParts([members.take("system_prompt")], "text");
			const dynamic = members.take("dynamic_context");
			const context = dynamic === null || dynamic === undefined ? [] : contentParts([dynamic], "text");
			return plainLook("System prompt", [
				...[...prompt, ...context].map((part) => (part.kind === "text" ? { ...part, cut: 2 } : part)),
				...toolsOffered(members.take("tools")),
				...members.rest(),
			]);
		}
		case "ActionEvent":
			return actionLook(event, members, results, step);
		case "ObservationEvent":
		case "UserRejectObservation":
		case "AgentErrorEvent":
			return plainLook(
				kind === "AgentErrorEvent" ? "Error of the agent" : textOf(members.take("tool_name")) || kind,
				resultParts(event, members),
				{ tags: tagsOf(step, objectOf(event.members.observation)) },
			);
		case TOOL_CALL:
			return toolCallLook(step.events);
		case "HookExecutionEvent":
			return hookLook(members);
		case "ConversationErrorEvent":
		case "ServerErrorEvent": {
			const code = members.text("code");
			return plainLook(code || "Error", [
				...textPart("text", members.text("detail")),
				...errorFacts(objectOf(members.take("classification"))),
				...members.rest(),
			]);
		}
		case "PauseEvent":
			return plainLook("Paused", members.rest());
		case "InterruptEvent":
			return plainLook("Interrupted", [...textPart("text", members.text("reason")), ...members.rest()]);
		case "Condensation": {
			const forgotten = listOf(members.take("forgotten_event_ids"));
			members.take("llm_response_id");
			return plainLook(
				"The history was condensed",
				[
					...textPart("markdown", members.text("summary")),
					...members.foldedRest("more"),
					...folded("the events that the agent forgot", valueParts("ids", forgotten.join("\n"))),
				],
				{ subject: `the agent no longer sees ${forgotten.length} events` },
			);
		}
		case "CondensationRequest":
			return plainLook("The history is to be condensed", members.rest());
		case "CondensationSummaryEvent":
			return plainLook("Summary of the history", [...textPart("markdown", members.text("summary")), ...members.rest()]);
		case "SecurityAnalysisEvent": {
			const risks = Object.entries(objectOf(members.take("risks")) ?? {});
			const highest = ["HIGH", "MEDIUM", "LOW", "UNKNOWN"].find((risk) => risks.some(([, one]) => one === risk));
			return plainLook(
				"Risk judged",
				[
					...facts(["analyzer", members.text("analyzer")], ["policy", members.text("policy")]),
					...members.rest(),
					...folded("risk of each action", valueParts("", Object.fromEntries(risks))),
				],
				highest === undefined ? {} : { tags: [{ word: `risk ${highest}`, kind: "risk" }] },
			);
		}
		case "StreamingDeltaEvent":
			return plainLook("A part of a message", [
				...textPart("text", members.text("content")),
				...folded("reasoning", textPart("markdown", members.text("reasoning_content"))),
				...members.rest(),
			]);
		case "ConversationStateUpdateEvent":
			return stateLook(members);
		default:
			return plainLook(kind, members.rest());
	}
}

function messageLook({ source, members: all }: ParsedEvent, members: Members): StepLook {
	const message = new Members(objectOf(members.take("llm_message")), "role", "kind");
	members.take("llm_response_id");
	const critic = members.take("critic_result");
	const sender = members.text("sender");
	const skills = listOf(members.take("activated_skills")).map(textOf).join(", ");
	const added = contentParts(members.take("extended_content"), "markdown");
	return plainLook(
		source === "user" ? "User" : "Agent",
		[
			...reasoningParts(message),
			...contentParts(message.take("content"), "markdown"),
			...facts(["skills", skills]),
			...folded("what was added for the agent", added),
			...criticParts(critic),
			...message.foldedRest("more of the message"),
			...members.rest(),
		],
		{ subject: sender === "" ? "" : `from ${sender}`, tags: criticTags(all.critic_result) },
	);
}

function actionLook(event: ParsedEvent, members: Members, results: readonly ParsedEvent[], step: Step): StepLook {
	const result = results.at(-1);
	const observation = objectOf(result?.members.observation);
	const action = objectOf(members.take("action"));
	const name = members.text("tool_name");
	const summary = members.text("summary");
	// Without a summary of the model, the agent server writes the tool and its arguments, which are shown anyway.
	const said = summary.startsWith(`${name}: {`) ? "" : summary;
	const thought = contentParts(members.take("thought"), "markdown");
	const reasoning = reasoningParts(members);
	// It is a tag of the step.
	members.take("security_risk");
	const critic = members.take("critic_result");
	const call = new Members(objectOf(members.take("tool_call")), "id", "name", "origin", "responses_item_id");
	const given = argumentsOf(call.text("arguments"));
	for (const taken of ["tool_call_id", "llm_response_id"]) members.take(taken);
	// An action that the agent server did not accept has the arguments of the call only.
	const look = lookOfCall(name, action ?? given, observation);
	const others = results.filter((one) => one.kind !== "ObservationEvent");
	return {
		...look,
		parts: [
			...reasoning,
			...thought,
			...textPart("text", said),
			...look.parts,
			...others.flatMap((one) => resultParts(one, new Members(one.members, ...COMMON, "tool_name"))),
			...results
				.filter((one) => one.kind === "ObservationEvent")
				.flatMap((one) =>
					folded("what was added for the agent", contentParts(one.members.extended_content, "markdown")),
				),
			...criticParts(critic),
			...folded("more of the call", action === undefined ? [] : givenMore(given, action, said)),
			...call.rest(),
			...members.rest(),
		],
		tags: [...tagsOf(step, observation), ...criticTags(event.members.critic_result)],
		children: STARTS_CHILDREN.has(textOf(action?.kind)) ? childrenOf(observation) : [],
	};
}

/** Returns the arguments that the model gave, and the action lacks or has in another form. */
function givenMore(given: Json, action: Json, summary: string): readonly Part[] {
	const shownElsewhere: Json = { ...action, summary, ...objectOf(action.data) };
	const lacking = Object.entries(given).filter(
		([name, value]) => name !== "security_risk" && JSON.stringify(shownElsewhere[name]) !== JSON.stringify(value),
	);
	return valueParts("", Object.fromEntries(lacking));
}

/** Returns the arguments of a call, which are JSON; a text that is not stands under a name of its own. */
function argumentsOf(text: string): Json {
	try {
		const value: unknown = JSON.parse(text);
		return objectOf(value) ?? { arguments: value };
	} catch {
		return { arguments: text };
	}
}

function tagsOf(step: Step, observation: Json | undefined): readonly StepTag[] {
	const tags: StepTag[] = [];
	if (step.risk !== "") tags.push({ word: `risk ${step.risk}`, kind: step.risk === "LOW" ? "plain" : "risk" });
	const code = exitCodeOf(observation);
	if (code !== undefined) tags.push({ word: `exit code ${code}`, kind: code > 0 ? "failed" : "plain" });
	if (observation?.timeout === true) tags.push({ word: "timed out", kind: "plain" });
	if (observation?.exit_code === -1 && observation.timeout !== true)
		tags.push({ word: "still running", kind: "plain" });
	if (step.failed && code === undefined) tags.push({ word: "failed", kind: "failed" });
	return tags;
}

/** Returns the parts of a result that stands alone, or is no observation. */
function resultParts({ kind }: ParsedEvent, members: Members): readonly Part[] {
	for (const taken of ["tool_call_id", "action_id"]) members.take(taken);
	if (kind === "UserRejectObservation") {
		const by = members.text("rejection_source");
		const reason = members.text("rejection_reason");
		return [...textPart("text", `Rejected by ${by === "hook" ? "a hook" : "a person"}: ${reason}`), ...members.rest()];
	}
	if (kind === "AgentErrorEvent")
		return [
			...contentParts(members.take("error"), "terminal"),
			...errorFacts(objectOf(members.take("classification"))),
			...members.rest(),
		];
	const observation = new Members(objectOf(members.take("observation")), "kind", "is_error");
	return [
		...contentParts(observation.take("content"), "terminal"),
		...observation.foldedRest("more"),
		...folded("what was added for the agent", contentParts(members.take("extended_content"), "markdown")),
		...members.rest(),
	];
}

/** Returns the step of a tool call of an ACP agent, which reports its progress in several events. */
function toolCallLook(calls: readonly ParsedEvent[]): StepLook {
	const newest: Record<string, unknown> = {};
	for (const { members } of calls)
		for (const [name, value] of Object.entries(members)) if ((value ?? null) !== null) newest[name] = value;
	const members = new Members(newest, ...COMMON, "tool_call_id", "is_error");
	const title = members.text("title");
	const kind = members.text("tool_kind");
	const status = members.text("status");
	const content = listOf(members.take("content"));
	const input = members.take("raw_input");
	const output = members.take("raw_output");
	const shownContent = content.flatMap(acpContent);
	const failed = newest.is_error === true || status === "failed";
	const diffs = shownContent.some((part) => part.kind === "diff");
	return plainLook(
		title || kind || "Tool",
		[
			...(diffs ? folded("as it was asked for", inputParts(input)) : inputParts(input)),
			...shownContent,
			...(shownContent.length > 0 ? folded("result", resultValue(output)) : resultValue(output)),
			...members.rest(),
		],
		{
			subject: title === "" ? "" : kind,
			tags: failed
				? [{ word: "failed", kind: "failed" }]
				: status === "" || status === "completed"
					? []
					: [{ word: status.replaceAll("_", " "), kind: "plain" }],
		},
	);
}

function inputParts(input: unknown): readonly Part[] {
	const members = objectOf(input);
	if (members === undefined) return valueParts("", input);
	const given = new Members(members);
	return [...textPart("command", given.text("command")), ...given.rest()];
}

function resultValue(value: unknown): readonly Part[] {
	return typeof value === "string" ? textPart("terminal", value) : valueParts("", value);
}

/** Returns the parts of a block of content of an ACP tool call. Its names are those of Python or of the protocol. */
function acpContent(block: unknown): readonly Part[] {
	const members = objectOf(block);
	if (members?.type === "diff") {
		const one = new Members(members, "type");
		const [before, after] = [
			[one.text("old_text"), one.text("oldText")],
			[one.text("new_text"), one.text("newText")],
		].map((names) => names.join(""));
		const path = one.text("path");
		return [{ kind: "diff", path, before: before ?? "", after: after ?? "", isWhole: before === "" }, ...one.rest()];
	}
	if (members?.type === "content") return contentParts([members.content], "terminal");
	return contentParts([block], "terminal");
}

function hookLook(members: Members): StepLook {
	const type = members.text("hook_event_type");
	const blocked = members.flag("blocked");
	const failed = members.take("success") === false;
	const verdict = blocked ? "blocked" : failed ? "failed" : "allowed";
	const code = members.take("exit_code");
	const reason = members.text("reason");
	const error = members.text("error");
	for (const name of ["action_id", "message_id"]) members.take(name);
	return plainLook(
		`Hook ${type}`,
		[
			...textPart("command", members.text("hook_command")),
			...textPart("text", reason),
			...(error === reason ? [] : textPart("text", error)),
			...textPart("markdown", members.text("additional_context")),
			...textPart("terminal", members.text("stdout")),
			...textPart("terminal", members.text("stderr")),
			...facts(["tool", members.text("tool_name")]),
			...folded("what the hook was given", valueParts("", members.take("hook_input"))),
			...members.rest(),
		],
		{
			tags: [
				{ word: verdict, kind: verdict === "allowed" ? "plain" : "failed" },
				...(typeof code === "number" && code !== 0 ? [{ word: `exit code ${code}`, kind: "plain" as const }] : []),
			],
		},
	);
}

function stateLook(members: Members): StepLook {
	const key = members.text("key");
	const value = members.take("value");
	const status = textOf(value);
	if (key === STATUS && status !== "") return plainLook(STATUSES[status] ?? `Status: ${status}`, members.rest());
	if (key === "goal") return goalLook(new Members(objectOf(value)));
	if (key === "full_state") return plainLook("Full state", folded("all values", valueParts("", value)));
	return plainLook(key.replaceAll("_", " "), [...valueParts("", value), ...members.rest()]);
}

const STATUSES: Readonly<Record<string, string>> = {
	waiting_for_confirmation: "Status: waits for a confirmation",
};

function goalLook(goal: Members): StepLook {
	const status = goal.text("status");
	const verdict = new Members(objectOf(goal.take("verdict")));
	const [iteration, most] = [goal.take("iteration"), goal.take("max_iterations")];
	goal.take("active");
	const score = verdict.take("score");
	verdict.take("complete");
	const missing = verdict.text("missing");
	return plainLook(
		GOALS[status] ?? `Goal: ${status}`,
		[
			...textPart("markdown", goal.text("objective")),
			...(missing === "" ? [] : [...facts(["still missing", missing])]),
			...facts(["how far it is", typeof score === "number" ? `${Math.round(score * 100)} %` : undefined]),
			...verdict.rest(),
			...goal.rest(),
		],
		{ subject: `round ${iteration} of at most ${most}` },
	);
}

const GOALS: Readonly<Record<string, string>> = {
	running: "The agent works on its goal",
	complete: "The goal is reached",
	capped: "The goal was not reached in time",
	interrupted: "The work on the goal was interrupted",
};

/** Returns what a model thought before it answered, behind a fold. */
function reasoningParts(members: Members): readonly Part[] {
	const text = members.text("reasoning_content");
	const blocks = listOf(members.take("thinking_blocks")).flatMap((block) => {
		const { thinking, data, type } = objectOf(block) ?? {};
		// The model's text repeats what its blocks say.
		if (typeof thinking === "string") return thinking === text ? [] : textPart("markdown", thinking);
		return type === "redacted_thinking" ? [...textPart("text", "A part is encrypted."), ...valueParts("", data)] : [];
	});
	const item = new Members(objectOf(members.take("responses_reasoning_item")), "id");
	return folded("reasoning", [...textPart("markdown", text), ...blocks, ...item.rest()]);
}

function criticParts(result: unknown): readonly Part[] {
	const critic = new Members(objectOf(result));
	critic.take("score");
	return [...textPart("text", critic.text("message")), ...critic.foldedRest("what the critic noticed")];
}

function criticTags(result: unknown): readonly StepTag[] {
	const score = objectOf(result)?.score;
	return typeof score === "number" ? [{ word: `critic ${Math.round(score * 100)} %`, kind: "plain" }] : [];
}

function errorFacts(classification: Json | undefined): readonly Part[] {
	const members = new Members(classification);
	const [kind, action] = [members.text("kind"), members.text("user_action")];
	const retry = members.flag("retryable");
	return [
		...facts(
			["kind of error", kind],
			["retry", retry ? "a retry is possible" : undefined],
			["to do", action === "none" ? undefined : action],
		),
		...members.rest(),
	];
}

/** Returns the tools that the agent may use: their names, and behind a fold what the model is told of each. */
function toolsOffered(tools: unknown): readonly Part[] {
	const all = listOf(tools).map((tool) => objectOf(tool) ?? {});
	const nameOf = (tool: Json) => textOf(tool.title) || textOf(tool.name) || textOf(tool.kind);
	return [
		...facts(["tools", all.map(nameOf).join(", ")]),
		...folded(
			"what the model is told of the tools",
			all.flatMap((tool) => folded(nameOf(tool), new Members(tool, "kind").rest())),
		),
	];
}

/** Returns the ids of conversations that the result of an action names. */
function childrenOf(observation: Json | undefined): readonly string[] {
	const id = textOf(observation?.conversation_id);
	return id === "" ? [] : [id];
}

/** Returns what a step does in one line of at most some 200 characters: its title, and to what or with which command. */
export function lineOfStep(step: Step): string {
	const { title, subject, parts } = lookOfStep(step);
	const command = parts.find((part) => part.kind === "command");
	const what = subject || (command?.kind === "command" ? command.text : "");
	return what === "" ? title : `${title}: ${what.slice(0, 200)}`;
}

/** Returns all texts that a step shows, or has behind a fold: its title, and each text and number of its events. */
export function textsOfStep(step: Step): readonly string[] {
	const { title, subject, tags } = lookOfStep(step);
	const texts = [title, subject, ...tags.map(({ word }) => word)];
	const walk = (value: unknown): void => {
		if (typeof value === "string") texts.push(value);
		else if (typeof value === "number") texts.push(String(value));
		else if (typeof value === "object" && value !== null) for (const one of Object.values(value)) walk(one);
	};
	for (const { members } of step.events) walk(members);
	return texts;
}
