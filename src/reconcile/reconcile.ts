import { LRUCache } from "lru-cache";
import {
	ConversationExecutionStatusSchema,
	ConversationExecutionStatus as Status,
} from "../../gen/conversations/v1/conversation_pb.js";
import type { EventIngest } from "../conversations/ingest/event-ingest.ts";
import type { Ingest } from "../conversations/ingest/ingest.ts";
import { ServiceError } from "../errors.ts";
import { stringifyExactJson } from "../record/json/exact-json.ts";
import { type ExactJsonObject, memberOf } from "../record/json/json-value.ts";
import type { Condition } from "../store/condition.ts";
import { gapKey } from "../store/gaps.ts";
import type { Poster } from "../store/owners.ts";
import type { Store } from "../store/store.ts";
import { type AgentServerClient, AgentServerError, type ListedConversation, type Page } from "./agent-server.ts";

/**
 * Compares what is stored with what an agent server has, and takes in what is missing or newer, in the same way as posts.
 * A run changes nothing that is the same already, so it can be repeated at any time, also after an interruption.
 */

/** In whose name fetched data is stored. It comes from the configuration, never from what is fetched. */
export interface ReconciledSender {
	/**
	 * Names under which the agent server posts; the first is that of new conversations. Empty when they are not known: then
	 * conversations keep the sender that they have, and it is not examined which of them the agent server no longer has.
	 */
	readonly names: readonly string[];
	/** Owner of the conversations; undefined for none. Conversations of another owner are left alone. */
	readonly owner: string | undefined;
}

export interface Progress {
	readonly conversations: number;
	readonly events: number;
	/** Number of conversations whose record was stored or changed. */
	readonly records: number;
	/** Number of gaps that were open before and are closed. */
	readonly gapsClosed: number;
	/** Number of conversations that could not be compared or taken in. */
	readonly failures: number;
	/** Number of stored conversations that the agent server no longer has and that were not deleted. */
	readonly gone: number;
	/** Their ids, at most {@link MAX_IDS}. */
	readonly goneIds: readonly string[];
}

export const NOTHING: Progress = {
	...{ conversations: 0, events: 0, records: 0, gapsClosed: 0, failures: 0, gone: 0 },
	goneIds: [],
};

/** Milliseconds after which the comparison of one conversation ends. The next run goes on with what is stored then. */
const COMPARISON = 10 * 60_000;
const MAX_IDS = 1000;
/** Name under which new conversations are stored when the names of the sender are not known. */
const UNKNOWN_SENDER = "reconcile";
/** Number of conversations that are listed at a time to find those that the agent server no longer has. */
const PAGE = 500;

const NOT_DELETED = ConversationExecutionStatusSchema.values
	.map(({ number }) => number)
	.filter((number) => number !== Status.DELETING);

export interface ReconcileOptions {
	readonly client: Pick<AgentServerClient, "conversations" | "events" | "record">;
	readonly sender: ReconciledSender;
	readonly store: Pick<Store, "getOwnership" | "getErasure" | "getRecordState" | "listConversations" | "listGaps">;
	readonly ingest: Pick<Ingest, "fetched">;
	readonly eventIngest: Pick<EventIngest, "fetched">;
	/** What earlier runs have compared. Without it, everything is compared. */
	readonly verified?: Verified | undefined;
	readonly onFailure: (conversationId: string, error: unknown) => void;
	readonly onProgress?: ((progress: Progress) => void) | undefined;
	/** Milliseconds after which the comparison of one conversation ends. Default: {@link COMPARISON}. */
	readonly comparison?: number | undefined;
	readonly signal: AbortSignal;
}

/**
 * Runs once over all conversations of an agent server.
 *
 * @throws AgentServerError when the agent server cannot be read; what was taken in before stays
 * @throws ServiceError `unavailable` when the store cannot be read or written
 */
export async function reconcile(options: ReconcileOptions): Promise<Progress> {
	const { client, sender, store, ingest, eventIngest, verified, signal } = options;
	const { onFailure, onProgress, comparison = COMPARISON } = options;
	let progress = NOTHING;
	const seen = new Set<string>();
	for await (const { items } of client.conversations()) {
		for (const listed of items) {
			signal.throwIfAborted();
			if (seen.has(listed.id)) continue;
			seen.add(listed.id);
			await compare(listed);
		}
	}
	for (const name of sender.names) await findGone(name);
	return progress;

	function add(name: Exclude<keyof Progress, "goneIds">, added = 1): void {
		progress = { ...progress, [name]: progress[name] + added };
		onProgress?.(progress);
	}

	/** Compares one conversation. A failure that concerns it alone is reported, and the run goes on. */
	async function compare(listed: ListedConversation): Promise<void> {
		const late = AbortSignal.timeout(comparison);
		try {
			await compareUntil(listed, AbortSignal.any([signal, late]));
			add("conversations");
		} catch (thrown) {
			signal.throwIfAborted();
			const error = late.aborted ? new AgentServerError("The comparison takes too long", false) : thrown;
			const isFatal =
				error instanceof AgentServerError
					? error.isFatal
					: !(error instanceof ServiceError) || error.kind === "unavailable";
			if (isFatal) throw error;
			onFailure(listed.id, error);
			add("conversations");
			add("failures");
		}
	}

	async function compareUntil({ id, updatedAt, status }: ListedConversation, ended: AbortSignal): Promise<void> {
		const erasure = await store.getErasure(id);
		const ownership = await store.getOwnership(id);
		const present = erasure ?? ownership;
		// Nothing of it is fetched, because nothing of it may be stored.
		if (present !== undefined && sender.owner !== undefined && present.owner !== sender.owner)
			throw new ServiceError("permission_denied", "The conversation belongs to another owner", { conversationId: id });
		const gaps = await store.listGaps(id);
		const known = gaps.length === 0 ? verified?.get(id) : undefined;
		if (known?.updatedAt !== undefined && known.updatedAt === updatedAt) return;
		const name = nameOf(sender, ownership?.sender);
		const poster: Poster = { sender: name, owner: sender.owner };
		// What an erasure took is not taken in again; a record of a later life is.
		if (erasure !== undefined && (await takeRecord(id, poster, ended)) !== "stored") return;
		const newest = await firstOf(client.events(id, "TIMESTAMP_DESC", ended));
		// It was deleted meanwhile.
		if (newest === undefined) return;
		const { nextPageId } = newest;
		const items = oldestFirst(newest.items);
		// Nothing before the event that an earlier run reached is missing.
		const reachesKnown = known !== undefined && items.some((event) => memberOf(event, "id") === known.newestId);
		if (nextPageId === undefined || reachesKnown) await takeEvents(id, items, poster);
		else for await (const page of client.events(id, "TIMESTAMP", ended)) await takeEvents(id, page.items, poster);
		if ((await takeRecord(id, poster, ended)) === "gone") return;
		if (gaps.length > 0) {
			const open = new Set((await store.listGaps(id)).map(gapKey));
			add("gapsClosed", gaps.filter((gap) => !open.has(gapKey(gap))).length);
		}
		// While it runs, state may change without a later `updated_at`.
		const newestId = memberOf(items.at(-1), "id");
		if (status !== "running" && typeof newestId === "string") verified?.set(id, { updatedAt, newestId });
		else verified?.delete(id);
	}

	/** Takes in a record, if it is newer than the stored one. Returns whether it was stored. */
	async function takeRecord(conversationId: string, poster: Poster, ended: AbortSignal) {
		const body = await client.record(conversationId, ended);
		if (body === undefined) return "gone";
		if ((await ingest.fetched(conversationId, body, poster, signal)).duplicate) return "known";
		add("records");
		return "stored";
	}

	async function takeEvents(conversationId: string, events: readonly ExactJsonObject[], poster: Poster): Promise<void> {
		const ids = events.map((event) => memberOf(event, "id")).filter((id) => typeof id === "string");
		const known = new Set<unknown>((await store.getRecordState(conversationId, ids)).knownIds);
		const unknown = events.filter((event) => !known.has(memberOf(event, "id")));
		if (unknown.length === 0) return;
		const body = Buffer.from(stringifyExactJson(unknown));
		const { stored } = await eventIngest.fetched(conversationId, body, poster, signal);
		add("events", stored);
	}

	/** Counts the stored conversations of a sender that an agent server does not have. They are not changed. */
	async function findGone(name: string): Promise<void> {
		const { owner } = sender;
		const conditions: Condition[] = [
			{ kind: "equal", field: "sender", value: name },
			{ kind: "one_of", field: "executionStatus", values: NOT_DELETED },
		];
		if (owner !== undefined) conditions.push({ kind: "equal", field: "owner", value: owner });
		for (let before: bigint | undefined; ; ) {
			const page = await store.listConversations({ conditions, before, limit: PAGE, withRecords: false });
			for (const { conversationId } of page) {
				signal.throwIfAborted();
				if (seen.has(conversationId)) continue;
				// It may have been created after the list was read.
				const events = client.events(conversationId, "TIMESTAMP_DESC", signal);
				if ((await firstOf(events)) !== undefined) continue;
				const { goneIds } = progress;
				if (goneIds.length < MAX_IDS) progress = { ...progress, goneIds: [...goneIds, conversationId] };
				add("gone");
			}
			before = page.at(-1)?.sequence;
			if (before === undefined) return;
		}
	}
}

function nameOf({ names }: ReconciledSender, present: string | undefined): string {
	const [first] = names;
	if (first === undefined) return present ?? UNKNOWN_SENDER;
	return present !== undefined && names.includes(present) ? present : first;
}

/** Returns events in the order in which they happened, also if the agent server does not know the order that was asked. */
function oldestFirst(events: readonly ExactJsonObject[]): readonly ExactJsonObject[] {
	const [first, last] = [events.at(0)?.timestamp, events.at(-1)?.timestamp];
	return typeof first === "string" && typeof last === "string" && first < last ? events : events.toReversed();
}

/** Returns the first page, and reads no other one; undefined when there is none. */
async function firstOf<Item>(pages: AsyncGenerator<Page<Item>, void, undefined>): Promise<Page<Item> | undefined> {
	for await (const page of pages) return page;
	return undefined;
}

/** What a run has compared of a conversation whose run was over. */
interface VerifiedConversation {
	/** `updated_at` as the agent server listed it. */
	readonly updatedAt: string | undefined;
	/** Id of the newest event. All events up to it are stored. */
	readonly newestId: string;
}

/** What the runs of this process have compared, so that the next one need not do it again. */
export type Verified = Pick<LRUCache<string, VerifiedConversation>, "get" | "set" | "delete">;

/** Maximum number of conversations that are remembered: about 20 MiB. Others are compared again. */
const MAX_CONVERSATIONS = 100_000;

export function newVerified(): Verified {
	return new LRUCache<string, VerifiedConversation>({ max: MAX_CONVERSATIONS });
}
