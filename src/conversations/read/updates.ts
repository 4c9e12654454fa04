import type { ConversationUpdate } from "../../../gen/conversations/v1/conversation_service_pb.js";
import type { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import type { Store } from "../../store/store.ts";
import type { StoredUpdate } from "../../store/updates.ts";
import { type EntryLog, type UpdateFilter, updateLog } from "./entry-log.ts";
import { originOf } from "./filter.ts";
import { type LogPage, type LogPageRequest, readLogPage } from "./log-page.ts";
import { MAX_PAGE_BYTES } from "./page.ts";
import { recordSize } from "./record-opener.ts";
import type { PresentViews, UpdateViewOptions } from "./update-view.ts";

/** Which updates are requested, and how they are shown. */
export interface UpdatesRequest extends LogPageRequest, UpdateViewOptions {
	/** Only updates of this origin. UNSPECIFIED means the same as undefined. */
	readonly origin?: UpdateOrigin | undefined;
}

/** Maximum bytes of records that are read for a page without records. Comparing them takes memory and time. */
const MAX_READ_BYTES = 8 * 1024 * 1024;

/** Lists the updates of one conversation or of all, oldest first. */
export class ListConversationUpdates {
	readonly #log: EntryLog<StoredUpdate, UpdateFilter>;
	readonly #views: PresentViews;

	constructor(store: Pick<Store, "updates">, views: PresentViews) {
		this.#log = updateLog(store);
		this.#views = views;
	}

	/**
	 * Returns a page, as {@link readLogPage} reads it.
	 *
	 * @throws ServiceError as {@link readLogPage} does, and `invalid_argument` for an unknown origin
	 */
	async list(request: UpdatesRequest): Promise<LogPage<ConversationUpdate>> {
		const { full } = request;
		const views = this.#views();
		return await readLogPage(this.#log, request, {
			...this.#optionsOf(request),
			toView: (stored) => views.toUpdate(stored, request),
			sizeOf: (update, { record }) => sizeOf(update) + (full ? recordSize(record) : 0),
		});
	}

	/**
	 * Returns a page of JSON texts.
	 *
	 * @throws ServiceError as {@link list} does
	 */
	async listJson(request: UpdatesRequest): Promise<LogPage<string>> {
		const views = this.#views();
		return await readLogPage(this.#log, request, {
			...this.#optionsOf(request),
			toView: (stored) => views.toJson(stored, request),
			sizeOf: (text) => Buffer.byteLength(text),
		});
	}

	#optionsOf({ full, origin }: UpdatesRequest) {
		return { filter: { origin: originOf(origin) }, maxReadBytes: full ? MAX_PAGE_BYTES : MAX_READ_BYTES };
	}
}

/** Returns the bytes of the fields beside the record that have no limit of their own. */
function sizeOf({ summary, changedFields }: ConversationUpdate): number {
	const texts = [summary?.title ?? "", summary?.model ?? "", ...Object.entries(summary?.tags ?? {}).flat()];
	return [...texts, ...(changedFields?.paths ?? [])].reduce((sum, text) => sum + Buffer.byteLength(text), 0);
}
