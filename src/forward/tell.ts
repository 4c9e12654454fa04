import { create } from "@bufbuild/protobuf";
import { ConversationEventFilterSchema, EventOrder } from "../../gen/conversations/v1/conversation_event_service_pb.js";
import { UpdateChange, UpdateChangeSchema, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { Reads } from "../conversations/conversation-reads.ts";
import { decodeSummary, encodeSummary } from "../conversations/read/records.ts";
import { ServiceError } from "../errors.ts";
import { stringifyExactJson } from "../record/json/exact-json.ts";
import type { ExactJson } from "../record/json/json-value.ts";
import type { StoredUpdate } from "../store/entries.ts";
import type { DeliveryRow, EndpointRow } from "../store/forwarding.ts";
import type { Store } from "../store/store.ts";

/** What deliveries can have beside the summary. */
export const INCLUDES = ["record", "messages"] as const;
const MESSAGES = 5;

/** What the data of deliveries are read from, limited to the owner of an endpoint. */
interface TellOptions {
	readonly store: Pick<Store, "updates">;
	readonly reads: {
		readonly get: Pick<Reads["get"], "getJson">;
		readonly events: Pick<Reads["events"], "listTexts">;
	};
}

/** Returns what a delivery tells; undefined when its update is not stored any more. Secrets are redacted. */
export async function tell(
	{ store, reads }: TellOptions,
	{ owner, include }: Pick<EndpointRow, "owner" | "include">,
	{ id, change, conversationId, sequence, data, createdAt }: DeliveryRow,
): Promise<Told | undefined> {
	const told = { id, change, conversationId };
	if (sequence === undefined) {
		const timestamp = isoTime(createdAt);
		return data === undefined ? undefined : { ...told, timestamp, ...wordsIn(data), data };
	}
	const query = { after: sequence - 1n, limit: 1, withRecords: false, ...(owner === "" ? {} : { owner }) };
	const [update] = await store.updates.list(query);
	if (update?.sequence !== sequence || update.conversationId !== conversationId) return undefined;
	const summary = summaryOf(update);
	const members = [
		stringifyExactJson({
			sequence,
			conversation_id: conversationId,
			change: UpdateChange[update.change].toLowerCase(),
			current: update.current,
			origin: UpdateOrigin[update.origin]?.toLowerCase() ?? null,
			sender: update.sender ?? "",
			summary: summary === undefined ? null : encodeSummary(summary),
		}).slice(1, -1),
	];
	if (update.change !== UpdateChange.ERASED) {
		if (include.includes("record")) members.push(`"record":${await recordOf(reads, update)}`);
		if (include.includes("messages")) members.push(`"messages":${await messagesOf(reads, conversationId)}`);
	}
	return { ...told, timestamp: isoTime(update.receivedAt), title: summary?.title, data: `{${members.join()}}` };
}

/** Returns the summary of an update or a conversation; undefined for an erasure, and when it cannot be read. */
export function summaryOf({ change, summary }: Pick<StoredUpdate, "summary"> & Partial<Pick<StoredUpdate, "change">>) {
	if (change === UpdateChange.ERASED) return undefined;
	try {
		return decodeSummary(summary);
	} catch {
		return undefined;
	}
}

/** Returns the JSON text of the record that was current at an update; `null` when it was removed or cannot be read. */
async function recordOf(reads: TellOptions["reads"], { conversationId, sequence }: StoredUpdate): Promise<string> {
	try {
		const found = await reads.get.getJson({ id: conversationId, sequence, secrets: "redacted" });
		return found.conversation;
	} catch (error) {
		if (error instanceof ServiceError && error.kind !== "unavailable") return "null";
		throw error;
	}
}

/** Returns the JSON text of the last messages, oldest first. */
async function messagesOf(reads: TellOptions["reads"], conversationId: string): Promise<string> {
	const page = await reads.events.listTexts({
		...{ conversationId, afterSequence: 0n, pageSize: MESSAGES, pageToken: "", secrets: "redacted" },
		order: EventOrder.NEWEST_FIRST,
		filter: create(ConversationEventFilterSchema, { kinds: ["MessageEvent"] }),
	});
	return `[${page.entries
		.flatMap(({ text }) => text ?? [])
		.toReversed()
		.join()}]`;
}

/** Returns what a chat is told of what has no update. */
function wordsIn(data: string): Pick<Told, "title" | "text"> {
	const parsed: { readonly text?: unknown; readonly summary?: { readonly title?: unknown } | null } = JSON.parse(data);
	const word = (value: unknown) => (typeof value === "string" ? value : undefined);
	return { title: word(parsed.summary?.title), text: word(parsed.text) };
}

function isoTime(microseconds: bigint): string {
	return new Date(Number(microseconds / 1000n)).toISOString();
}

/** What is told without an update, with the types of the deliveries: see `notices.ts`. */
const NOTICES = {
	GAP: "conversation.gap",
	BUDGET: "budget.threshold",
	SILENT: "conversation.silent",
	SCORED: "conversation.scored",
} as const;
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

function typeOf(change: string): string {
	return change === TEST_CHANGE ? "endpoint.test" : (CHANGES.get(change) ?? "conversation.updated");
}

/** What a delivery tells. */
export interface Told {
	/** Id of the delivery, the same in every repetition. */
	readonly id: string;
	/** Name of the change, such as FINISHED. */
	readonly change: string;
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

export interface Message {
	readonly contentType: string;
	readonly body: string;
}

/** Makes the message of what is told. `link` is the address of its conversation in the console, if that is known. */
export type Form = (told: Told, link: string | undefined) => Message;

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
