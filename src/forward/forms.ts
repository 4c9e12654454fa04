import { UpdateChange, UpdateChangeSchema } from "../../gen/conversations/v1/update_pb.js";
import { stringifyExactJson } from "../record/json/exact-json.ts";
import type { ExactJson } from "../record/json/json-value.ts";

/** What is told without an update, with the types of the deliveries: see `notices.ts`. */
const NOTICES = { GAP: "conversation.gap", BUDGET: "budget.threshold", SILENT: "conversation.silent" } as const;
export type NoticeChange = keyof typeof NOTICES;

/** What endpoints can be told of, by the names in the API, with the types of the deliveries. */
export const CHANGES: ReadonlyMap<string, string> = new Map([
	...UpdateChangeSchema.values
		.filter(({ number }) => number !== UpdateChange.UNSPECIFIED)
		.map(({ localName }) => [localName, `conversation.${localName.toLowerCase()}`] as const),
	...Object.entries(NOTICES),
]);

/** The type of a delivery that someone asked for, which no endpoint needs to want. */
export const TEST_CHANGE = "TEST";

/** Returns the type of deliveries of a change. */
function typeOf(change: string): string {
	return change === TEST_CHANGE ? "endpoint.test" : (CHANGES.get(change) ?? "conversation.updated");
}

/** Returns the name of the change of an update. */
export function changeOf(change: UpdateChange): string {
	return UpdateChange[change];
}

/** What a delivery tells. */
export interface Told {
	/** Id of the delivery, the same in every repetition. */
	readonly id: string;
	/** Name of the change, such as FINISHED. */
	readonly change: string;
	/** When it happened, in ISO 8601. */
	readonly timestamp: string;
	/** Empty for what concerns no single conversation. */
	readonly conversationId: string;
	/** Title of the conversation; undefined if it has none. */
	readonly title: string | undefined;
	/** What a chat is told in place of the name of the change; undefined for that. */
	readonly text?: string | undefined;
	/** JSON text of an object. Its secrets are redacted. */
	readonly data: string;
}

/** A message as it is sent. */
export interface Message {
	readonly contentType: string;
	readonly body: string;
}

/** Makes the message of what is told. `link` is the address of its conversation in the console, if that is known. */
export type Form = (told: Told, link: string | undefined) => Message;

/** The forms of deliveries. Each is one entry. */
export const FORMS: Readonly<Record<string, Form>> = {
	/** Standard Webhooks: `{type, timestamp, data}`. */
	plain: ({ change, timestamp, data }) => ({
		contentType: "application/json",
		body: withData({ type: typeOf(change), timestamp }, data),
	}),
	/** CloudEvents 1.0, structured content mode, JSON format. */
	cloudevents: ({ id, change, timestamp, conversationId, data }) => ({
		contentType: "application/cloudevents+json; charset=utf-8",
		body: withData(
			{
				...{ specversion: "1.0", id, source: "/conversation-update-webhook-service", type: typeOf(change) },
				...(conversationId === "" ? {} : { subject: conversationId }),
				...{ time: timestamp, datacontenttype: "application/json" },
			},
			data,
		),
	}),
	/** A text for a chat. */
	chat: (told, link) => ({
		contentType: "application/json",
		body: stringifyExactJson({ text: [sentenceOf(told), link].filter((part) => part !== undefined).join("\n") }),
	}),
};

/** @param data JSON text, which is not parsed and written again */
function withData(members: Readonly<Record<string, ExactJson>>, data: string): string {
	return `${stringifyExactJson(members).slice(0, -1)},"data":${data}}`;
}

const SENTENCES: Readonly<Record<string, string>> = {
	WAITING: "waits for confirmation",
	STUCK: "is stuck",
	RUNNING: "runs",
	TEST: "A test of the endpoint",
};

/** Maximum number of characters of a title in a chat. */
const MAX_TITLE = 200;

function sentenceOf({ change, conversationId, title, text }: Told): string {
	const what = withoutControls(text ?? SENTENCES[change] ?? change.toLowerCase());
	if (conversationId === "") return what;
	// A title is of others: its marks must not become a link or a mention.
	const shown = title && withoutControls(title).replaceAll(/[<>&|*_`~@[\]]/g, " ");
	const name = shown === undefined ? conversationId : `"${[...shown].slice(0, MAX_TITLE).join("")}"`;
	return `Conversation ${name}: ${what}`;
}

/** Puts spaces in place of what begins a line, changes the direction of a text or cannot be seen. */
function withoutControls(text: string): string {
	return text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, " ");
}
