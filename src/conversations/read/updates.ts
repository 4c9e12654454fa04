import type { ConversationUpdate } from "../../../gen/conversations/v1/conversation_service_pb.js";
import type { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import type { Store, StoredUpdate } from "../../store/store.ts";
import { type EntryLog, type UpdateFilter, updateLog } from "./entry-log.ts";
import { originOf } from "./filter.ts";
import { type LogPageRequest, readLogPage } from "./log-page.ts";
import { MAX_PAGE_BYTES } from "./page.ts";
import { recordSize } from "./record-opener.ts";
import type { UpdateViewOptions, UpdateViews } from "./update-view.ts";

/** Which updates are requested, and how they are shown. */
export interface UpdatesRequest extends LogPageRequest, UpdateViewOptions {
	/** Only updates of this origin. UNSPECIFIED means the same as undefined. */
	readonly origin?: UpdateOrigin | undefined;
}

/** A page of updates. */
export interface UpdatePage {
	readonly updates: readonly ConversationUpdate[];
	/** Empty on the last page. */
	readonly nextPageToken: string;
}

/** Maximum bytes of records that are read for a page without records. Comparing them takes memory and time. */
const MAX_READ_BYTES = 8 * 1024 * 1024;

/** Lists the updates of one conversation or of all, oldest first. */
export class ListConversationUpdates {
	readonly #log: EntryLog<StoredUpdate, UpdateFilter>;
	readonly #views: UpdateViews;

	constructor(store: Pick<Store, "updates">, views: UpdateViews) {
		this.#log = updateLog(store);
		this.#views = views;
	}

	/**
	 * Returns a page, as {@link readLogPage} reads it.
	 *
	 * @throws ServiceError as {@link readLogPage} does, and `invalid_argument` for an unknown origin
	 */
	async list(request: UpdatesRequest): Promise<UpdatePage> {
		const { full } = request;
		const { entries, nextPageToken } = await readLogPage(this.#log, request, {
			filter: { origin: originOf(request.origin) },
			maxReadBytes: full ? MAX_PAGE_BYTES : MAX_READ_BYTES,
			toView: (stored) => this.#views.toUpdate(stored, request),
			sizeOf: (update, { record }) => sizeOf(update) + (full ? recordSize(record) : 0),
		});
		return { updates: entries, nextPageToken };
	}
}

/** Returns the bytes of the fields beside the record that have no limit of their own. */
function sizeOf({ summary, changedFields }: ConversationUpdate): number {
	const texts = [summary?.title ?? "", summary?.model ?? "", ...Object.entries(summary?.tags ?? {}).flat()];
	return [...texts, ...(changedFields?.paths ?? [])].reduce((sum, text) => sum + Buffer.byteLength(text), 0);
}
