import { create } from "@bufbuild/protobuf";
import { ConversationEventFilterSchema, EventOrder } from "../../gen/conversations/v1/conversation_event_service_pb.js";
import { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { Reads } from "../conversations/conversation-reads.ts";
import { decodeSummary, encodeSummary } from "../conversations/read/records.ts";
import { ServiceError } from "../errors.ts";
import { stringifyExactJson } from "../record/json/exact-json.ts";
import type { StoredUpdate } from "../store/entries.ts";
import type { DeliveryRow, EndpointRow } from "../store/forwarding.ts";
import type { Store } from "../store/store.ts";
import { changeOf, type Told } from "./forms.ts";

/** What deliveries can have beside the summary. */
export const INCLUDES = ["record", "messages"] as const;
/** Number of the last messages that a delivery has. */
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
			change: changeOf(update.change).toLowerCase(),
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
