import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { ConversationEventEntry } from "../../../../gen/conversations/v1/conversation_event_service_pb.js";

/** The steps of a conversation, as the timeline shows them: an action and its observation are one step. */

/** Key of the state that is the status of a conversation. */
const STATUS = "execution_status";

/** Kind of the events with which an ACP agent reports the progress of a tool call. */
const TOOL_CALL = "ACPToolCallEvent";

export const SYSTEM_PROMPT = "System prompt";

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

/** A JSON object of any form. */
export type Json = Readonly<Record<string, unknown>>;

export interface Step {
	/** Id of the step's first event. */
	readonly id: string;
	readonly sequence: bigint;
	readonly look: "user" | "agent" | "tool" | "hook" | "error" | "state" | "other";
	readonly title: string;
	readonly time: number;
	/** Milliseconds from the action to its observation; undefined where it is not known, or does not apply. */
	readonly duration: number | undefined;
	/** Text that was written by a person, a model or a program. It is never HTML. */
	readonly text: string;
	/** Whether the text is that of a message, which may be Markdown. */
	readonly isMarkdown: boolean;
	/** What a tool was called with. */
	readonly input: string;
	/** What a tool returned. */
	readonly output: string;
	readonly failed: boolean;
	/** Id of the model's response that asked for the step. */
	readonly responseId: string | undefined;
	/** The events of the step. */
	readonly events: readonly ParsedEvent[];
}

/** Whether a step only reports a part of the state other than the status. There are many of them, of little interest. */
export function isMinor({ events }: Step): boolean {
	return events.every(({ kind, members }) => kind === "ConversationStateUpdateEvent" && members.key !== STATUS);
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
	return object(JSON.parse(text)) ?? {};
}

/**
 * Returns the id of the action that an event is the result of. A hook names the action that it runs for, and is no
 * result of it.
 */
export function actionOf({ kind, members }: ParsedEvent): string | undefined {
	return kind === "HookExecutionEvent" ? undefined : text(members.action_id) || undefined;
}

/** Returns the id of the tool call whose progress an event of an ACP agent reports. */
export function toolCallOf({ kind, members }: ParsedEvent): string | undefined {
	return kind === TOOL_CALL ? text(members.tool_call_id) : undefined;
}

/**
 * Returns the step of events.
 *
 * @param events an event and its results, or all reports of a tool call
 */
export function stepOf(events: readonly ParsedEvent[]): Step {
	const [first, ...results] = events;
	if (first === undefined) throw new TypeError("a step has an event");
	return first.kind === TOOL_CALL ? toolCallStep(first, events) : eventStep(first, results);
}

function eventStep(event: ParsedEvent, results: readonly ParsedEvent[]): Step {
	const { members, kind, source } = event;
	const common = { ...base(event), events: [event, ...results] };
	if (event.unreadable) return { ...common, look: "error", title: "This event cannot be read", failed: true };
	switch (kind) {
		case "MessageEvent": {
			const message = object(members.llm_message) ?? {};
			const look = source === "user" ? "user" : "agent";
			const title = look === "user" ? "User" : "Agent";
			return { ...common, look, title, text: contentText(message.content), isMarkdown: true };
		}
		case "SystemPromptEvent":
			return { ...common, title: SYSTEM_PROMPT, text: contentText([members.system_prompt]) };
		case "ActionEvent": {
			const result = results.at(-1);
			const observation = object(result?.members.observation) ?? {};
			const action = object(members.action) ?? {};
			const finish = text(action.message);
			const tool = text(members.tool_name);
			const summary = text(members.summary);
			// Without a summary of the model, the agent server writes the tool and its arguments, which are shown anyway.
			const said = summary.startsWith(`${tool}: {`) ? "" : summary;
			return {
				...common,
				look: "tool",
				title: tool || "action",
				text: [contentText(members.thought), said, finish].filter(Boolean).join("\n\n"),
				isMarkdown: true,
				input: finish === "" ? inputOf(action, members) : "",
				output: outputOf(result, observation),
				duration: result && result.time - event.time,
				failed: observation.is_error === true || result?.kind === "AgentErrorEvent",
			};
		}
		case "ObservationEvent": {
			const observation = object(members.observation) ?? {};
			const output = outputOf(event, observation);
			return { ...common, look: "tool", title: text(members.tool_name), output, failed: observation.is_error === true };
		}
		case "HookExecutionEvent": {
			const failed = members.success === false || members.blocked === true;
			const verdict = members.blocked === true ? "blocked" : failed ? "failed" : "allowed";
			return {
				...common,
				look: "hook",
				title: `hook ${text(members.hook_event_type)}`,
				text: `${text(members.hook_command)} · ${verdict}`,
				output: [text(members.stdout), text(members.stderr), text(members.error)].filter(Boolean).join("\n"),
				failed,
			};
		}
		case "ConversationErrorEvent": {
			const classification = object(members.classification) ?? {};
			const retry = classification.retryable === true ? "a retry is possible" : "";
			const kind = text(classification.kind);
			const facts = [kind && `kind of error: ${kind}`, retry].filter(Boolean).join(" · ");
			return {
				...common,
				look: "error",
				title: text(members.code) || "Error",
				text: [text(members.detail), facts].filter(Boolean).join("\n"),
				failed: true,
			};
		}
		case "AgentErrorEvent":
			return { ...common, look: "error", title: "Error of the agent", text: text(members.error), failed: true };
		case "PauseEvent":
			return { ...common, look: "state", title: "Paused" };
		case "InterruptEvent":
			return { ...common, look: "state", title: "Interrupted", text: text(members.reason) };
		case "ConversationStateUpdateEvent": {
			const key = text(members.key);
			if (key === STATUS) return { ...common, look: "state", title: `Status: ${plain(members.value)}` };
			const value = key === "full_state" ? "" : plain(members.value);
			return { ...common, look: "state", title: key === "full_state" ? "Full state" : key, text: value };
		}
		default:
			return { ...common, title: kind, text: plain(members) };
	}
}

/** Returns the step of a tool call of an ACP agent, which reports its progress in several events. */
function toolCallStep(first: ParsedEvent, calls: readonly ParsedEvent[]): Step {
	const last = calls.at(-1) ?? first;
	const newest = (name: string): unknown =>
		calls.findLast(({ members }) => (members[name] ?? null) !== null)?.members[name];
	return {
		...base(first),
		events: calls,
		look: "tool",
		title: text(newest("title")) || text(newest("tool_kind")) || "tool",
		input: plain(newest("raw_input")),
		output: plain(newest("raw_output")) || contentText(newest("content")),
		duration: calls.length > 1 ? last.time - first.time : undefined,
		failed: last.members.is_error === true,
	};
}

function base(event: ParsedEvent): Step {
	return {
		id: event.id,
		sequence: event.sequence,
		look: "other",
		title: event.kind,
		time: event.time,
		duration: undefined,
		text: "",
		isMarkdown: false,
		input: "",
		output: "",
		failed: false,
		responseId: text(event.members.llm_response_id) || undefined,
		events: [event],
	};
}

function outputOf(result: ParsedEvent | undefined, observation: Json): string {
	if (result === undefined) return "";
	const { members } = result;
	if (result.kind === "UserRejectObservation") return `Rejected: ${text(members.rejection_reason)}`;
	if (result.kind === "AgentErrorEvent") return text(members.error);
	return contentText(observation.content) || text(observation.output) || plain(observation);
}

/** Returns what a tool was called with: a command, or the action without its kind, or the arguments of the call. */
function inputOf(action: Json, members: Json): string {
	const { kind: _, command, ...rest } = action;
	// The command of a file editor says little without the name of the file.
	const isAlone = Object.values(rest).every((value) => typeof value !== "string");
	if (isAlone && text(command) !== "") return text(command);
	const given = Object.entries({ command, ...rest }).filter(([, value]) => (value ?? null) !== null);
	const call = object(members.tool_call) ?? {};
	return given.length > 0 ? plain(Object.fromEntries(given)) : text(call.arguments);
}

/** Returns the texts of a list of content, such as that of a message. Images and other content are named only. */
function contentText(content: unknown): string {
	if (typeof content === "string") return content;
	if (!Array.isArray(content)) return "";
	return content
		.map((item: unknown) => {
			if (typeof item === "string") return item;
			const one = object(item) ?? {};
			return typeof one.text === "string" ? one.text : `[${text(one.type) || text(one.kind) || "content"}]`;
		})
		.join("\n");
}

function object(value: unknown): Json | undefined {
	const isObject = (one: unknown): one is Json => typeof one === "object" && one !== null && !Array.isArray(one);
	return isObject(value) ? value : undefined;
}

function text(value: unknown): string {
	return typeof value === "string" ? value : "";
}

/** Returns a value as a person reads it: a text as it is, anything else as indented JSON. */
function plain(value: unknown): string {
	if (value === undefined || value === null) return "";
	return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
