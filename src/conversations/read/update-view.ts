import { create } from "@bufbuild/protobuf";
import { LRUCache } from "lru-cache";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import {
	type ConversationUpdate,
	ConversationUpdateSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { isDataLoss } from "../../errors.ts";
import { deriveDiff } from "../../record/diff.ts";
import { fromMicroseconds } from "../../record/json/scalars.ts";
import type { RecordVault } from "../../record/secrets/record-vault.ts";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import type { Store, StoredUpdate } from "../../store/store.ts";
import { type OnUnreadable, recordSize, storedRecord, tryRead } from "./record-opener.ts";
import { decodeSummary } from "./stored-summary.ts";

/** How much of an update is shown. */
export interface UpdateViewOptions {
	/** Whether the whole record is given. */
	readonly full: boolean;
	/** How secrets are shown in the whole record. */
	readonly secrets: SecretsForm;
	/** Whether the changed fields tell of secrets that changed; for callers with the scope `secrets` only. */
	readonly secretPaths: boolean;
}

/** Most encoded bytes of the records whose views are cached, and of those that are cached to be compared. */
const MAX_CACHED_BYTES = 4 * 1024 * 1024;
/** What a view without its record counts as in the cache. */
const SUMMARY_BYTES = 2048;

/** A record that is larger than a cache takes all of it. */
const cacheSize = (bytes: number): { size: number } => ({ size: Math.min(bytes, MAX_CACHED_BYTES) });

const diff = deriveDiff(ConversationInfoSchema);

/**
 * Builds what readers are given of stored updates. Views are cached for a while, so that many watchers of one update
 * cost one computation; they are shared, and nobody may change them.
 */
export class UpdateViews {
	readonly #store: Pick<Store, "get">;
	readonly #vault: RecordVault;
	readonly #onUnreadable: OnUnreadable;
	readonly #views = new LRUCache<string, Promise<ConversationUpdate>>({ maxSize: MAX_CACHED_BYTES });
	/** Records to compare the next update of their conversation with. */
	readonly #comparable = new LRUCache<string, ConversationInfo>({ maxSize: MAX_CACHED_BYTES });

	constructor(store: Pick<Store, "get">, vault: RecordVault, onUnreadable: OnUnreadable) {
		this.#store = store;
		this.#vault = vault;
		this.#onUnreadable = onUnreadable;
	}

	/**
	 * The update as it is shown. One that cannot be read is given as unreadable.
	 *
	 * @param stored an update that was read with its record
	 * @throws ServiceError `unavailable` when the record before it cannot be asked for
	 */
	toUpdate(stored: StoredUpdate, options: UpdateViewOptions): Promise<ConversationUpdate> {
		const { full, secrets, secretPaths } = options;
		// Without the record it does not matter how its secrets are shown.
		const key = `${stored.sequence} ${full ? secrets : "summary"} ${secretPaths}`;
		const cached = this.#views.get(key);
		if (cached !== undefined) return cached;
		const view = full ? this.#full(stored, options) : this.#summary(stored, secretPaths);
		this.#views.set(key, view, cacheSize(SUMMARY_BYTES + (full ? recordSize(stored.record) : 0)));
		view.catch(() => this.#views.delete(key));
		return view;
	}

	async #full(stored: StoredUpdate, options: UpdateViewOptions): Promise<ConversationUpdate> {
		const summary = await this.toUpdate(stored, { ...options, full: false });
		if (summary.unreadable) return summary;
		const { bytes } = storedRecord(stored);
		const conversation = tryRead(stored, this.#onUnreadable, () => this.#vault.open(bytes, options.secrets));
		return conversation === undefined ? unreadable(stored) : { ...summary, conversation };
	}

	async #summary(stored: StoredUpdate, secretPaths: boolean): Promise<ConversationUpdate> {
		const read = tryRead(stored, this.#onUnreadable, () => ({
			summary: decodeSummary(stored.summary),
			record: this.#toCompare(stored, secretPaths),
		}));
		if (read === undefined) return unreadable(stored);
		const before = await this.#recordBefore(stored, secretPaths);
		return create(ConversationUpdateSchema, {
			...metadataOf(stored),
			summary: read.summary,
			changedFields: before && { paths: diff(before, read.record) },
		});
	}

	/** The record that was current before; undefined when there was none, or it was pruned or cannot be read. */
	async #recordBefore(
		{ conversationId, previousSequence }: StoredUpdate,
		secretPaths: boolean,
	): Promise<ConversationInfo | undefined> {
		if (previousSequence === undefined) return undefined;
		const cached = this.#comparable.get(comparableKey(previousSequence, secretPaths));
		if (cached !== undefined) return cached;
		const found = await this.#store.get(conversationId, previousSequence);
		// After pruning, what was current as of that sequence can be gone.
		if (found?.sequence !== previousSequence) return undefined;
		return tryRead(found, this.#onUnreadable, () => this.#toCompare(found, secretPaths));
	}

	/** @throws ServiceError `data_loss` when the record cannot be read */
	#toCompare(stored: StoredUpdate, secretPaths: boolean): ConversationInfo {
		const key = comparableKey(stored.sequence, secretPaths);
		const cached = this.#comparable.get(key);
		if (cached !== undefined) return cached;
		const { bytes } = storedRecord(stored);
		const record = secretPaths ? this.#openPlain(bytes) : this.#vault.open(bytes, "redacted");
		this.#comparable.set(key, record, cacheSize(bytes.byteLength + 1));
		return record;
	}

	/**
	 * A record with its secrets in plain text, as equal secrets are encrypted differently each time. Where the key is
	 * missing it stays as it is stored, and its secrets count as changed.
	 */
	#openPlain(bytes: Uint8Array): ConversationInfo {
		try {
			return this.#vault.open(bytes, "plaintext");
		} catch (error) {
			if (!isDataLoss(error)) throw error;
			return this.#vault.open(bytes, "encrypted");
		}
	}
}

function comparableKey(sequence: bigint, secretPaths: boolean): string {
	return `${sequence} ${secretPaths}`;
}

function metadataOf({ sequence, conversationId, change, current, origin, receivedAt }: StoredUpdate) {
	return { sequence, conversationId, change, current, origin, receivedAt: fromMicroseconds(receivedAt) };
}

function unreadable(stored: StoredUpdate): ConversationUpdate {
	return create(ConversationUpdateSchema, { ...metadataOf(stored), unreadable: true });
}
