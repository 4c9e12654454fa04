import { setImmediate } from "node:timers/promises";
import type { ConversationUpdate } from "../../../gen/conversations/v1/conversation_service_pb.js";
import type { Store } from "../../store/store.ts";
import { assertNotPruned, assertReached } from "../watch/pruned.ts";
import { invalid, uuid } from "./filter.ts";
import { MAX_PAGE_BYTES, pageSize } from "./page.ts";
import type { PageTokens } from "./page-token.ts";
import { recordSize } from "./record-opener.ts";
import type { UpdateViewOptions, UpdateViews } from "./update-view.ts";

/** Which updates are asked for, and how they are shown. */
export interface UpdatesRequest extends UpdateViewOptions {
	/** UUID of the only conversation; empty for all. */
	readonly conversationId: string;
	/** Only updates after this sequence; 0 for all that are kept. */
	readonly afterSequence: bigint;
	/** 0 is the default size. */
	readonly pageSize: number;
	/** Empty for the first page. */
	readonly pageToken: string;
}

/** A page of updates. */
export interface UpdatePage {
	readonly updates: readonly ConversationUpdate[];
	/** Empty on the last page. */
	readonly nextPageToken: string;
}

const LIST = "updates";
/** Bytes of records that are read for a page that shows none: they are compared, so they cost memory and time. */
const MAX_READ_BYTES = 8 * 1024 * 1024;
/** Updates that are viewed before other requests have their turn. */
const VIEWED_AT_ONCE = 8;

/** Lists the updates of one conversation or of all, oldest first. */
export class ListConversationUpdates {
	readonly #store: Pick<Store, "updates">;
	readonly #views: UpdateViews;
	readonly #tokens: PageTokens;

	constructor(store: Pick<Store, "updates">, views: UpdateViews, tokens: PageTokens) {
		this.#store = store;
		this.#views = views;
		this.#tokens = tokens;
	}

	/**
	 * A page. It ends before what it gives exceeds {@link MAX_PAGE_BYTES}, but has at least one update.
	 *
	 * @throws ServiceError `invalid_argument` that names the field, `out_of_range` when updates that the page should have
	 *   have been pruned or `afterSequence` is beyond the newest one, or `unavailable` when the store cannot be read
	 */
	async list(request: UpdatesRequest): Promise<UpdatePage> {
		const { afterSequence, pageToken, full } = request;
		const limit = pageSize(request.pageSize);
		const conversationId = request.conversationId === "" ? undefined : uuid(request.conversationId, "conversation_id");
		if (afterSequence < 0n) throw invalid("after_sequence", "must not be negative");
		const scope = { conversationId, afterSequence };
		const after = pageToken === "" ? afterSequence : this.#tokens.read(LIST, scope, pageToken);
		assertReached(after, (await this.#store.updates.range()).newest);
		const maxBytes = full ? MAX_PAGE_BYTES : MAX_READ_BYTES;
		const stored = await this.#store.updates.list({ after, conversationId, limit, maxBytes, withRecords: true });
		// A list from 0 gives what is kept when each of its pages is read.
		if (afterSequence > 0n) await assertNotPruned(this.#store, after, { conversationId });
		const updates: ConversationUpdate[] = [];
		let bytes = 0;
		for (const one of stored) {
			const update = await this.#views.toUpdate(one, request);
			bytes += sizeOf(update) + (full ? recordSize(one.record) : 0);
			if (updates.length > 0 && bytes > MAX_PAGE_BYTES) break;
			updates.push(update);
			if (updates.length % VIEWED_AT_ONCE === 0) await setImmediate();
		}
		const last = updates.at(-1);
		const more = last !== undefined && (await this.#hasMore(last.sequence, conversationId));
		return { updates, nextPageToken: more ? this.#tokens.write(LIST, scope, last.sequence) : "" };
	}

	/** A page can end for its number of updates or for their size, so only the store can tell. */
	async #hasMore(after: bigint, conversationId: string | undefined): Promise<boolean> {
		const [next] = await this.#store.updates.list({ after, conversationId, limit: 1, withRecords: false });
		return next !== undefined;
	}
}

/** Bytes of what stands beside the record, as far as they have no bound. */
function sizeOf({ summary, changedFields }: ConversationUpdate): number {
	const texts = [summary?.title ?? "", summary?.model ?? "", ...Object.entries(summary?.tags ?? {}).flat()];
	return [...texts, ...(changedFields?.paths ?? [])].reduce((sum, text) => sum + Buffer.byteLength(text), 0);
}
