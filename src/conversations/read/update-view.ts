import { create } from "@bufbuild/protobuf";
import { FieldMaskSchema } from "@bufbuild/protobuf/wkt";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import {
	type ConversationUpdate,
	ConversationUpdateSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { ServiceError } from "../../errors.ts";
import { deriveDiff } from "../../record/diff.ts";
import { fromMicroseconds } from "../../record/json/scalars.ts";
import type { RecordVault } from "../../record/secrets/record-vault.ts";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import type { Store, StoredUpdate } from "../../store/store.ts";
import { CHANGES } from "../change.ts";
import { summarize } from "../ingest/summary.ts";
import { LruMap } from "./lru.ts";

/** How much of an update is shown. */
export interface UpdateViewOptions {
	/** Whether the whole record is given. */
	readonly full: boolean;
	/** How secrets are shown in the whole record. */
	readonly secrets: SecretsForm;
	/** Whether the paths of secrets are given among the changed fields. */
	readonly secretPaths?: boolean;
}

/** Encoded bytes of the records whose views, and whose forms to compare with, are kept. */
const KEPT_BYTES = 4 * 1024 * 1024;
/** What an update without its record weighs: a summary and a few paths. */
const SUMMARY_BYTES = 2048;

const diff = deriveDiff(ConversationInfoSchema);

/**
 * Builds what readers are given of stored updates. What was built is kept for a while, so that many watchers of one
 * update cost one computation; it is shared, and nobody may change it.
 */
export class UpdateViews {
	readonly #store: Pick<Store, "get">;
	readonly #vault: RecordVault;
	readonly #views = new LruMap<string, Promise<ConversationUpdate>>(KEPT_BYTES);
	/** Records to compare the next update of their conversation with, by sequence. */
	readonly #comparable = new LruMap<bigint, ConversationInfo>(KEPT_BYTES);

	constructor(store: Pick<Store, "get">, vault: RecordVault) {
		this.#store = store;
		this.#vault = vault;
	}

	/**
	 * The update as it is shown.
	 *
	 * @param stored an update that was read with its record
	 * @throws ServiceError `unavailable` when the record before it cannot be read
	 */
	toUpdate(stored: StoredUpdate, options: UpdateViewOptions): Promise<ConversationUpdate> {
		// Without the record it does not matter how its secrets are shown.
		const key = `${stored.sequence} ${options.full ? options.secrets : "summary"}`;
		const known = this.#views.get(key);
		if (known !== undefined) return known;
		const view = options.full ? this.#full(stored, options.secrets) : this.#summary(stored);
		this.#views.set(key, view, SUMMARY_BYTES + (options.full ? recordOf(stored).byteLength : 0));
		view.catch(() => this.#views.delete(key));
		return view;
	}

	async #full(stored: StoredUpdate, secrets: SecretsForm): Promise<ConversationUpdate> {
		const summary = await this.toUpdate(stored, { full: false, secrets });
		return { ...summary, conversation: this.#vault.open(recordOf(stored), secrets) };
	}

	async #summary(stored: StoredUpdate): Promise<ConversationUpdate> {
		const before = await this.#before(stored);
		const record = this.#comparableOf(stored);
		return create(ConversationUpdateSchema, {
			sequence: stored.sequence,
			conversationId: stored.conversationId,
			change: CHANGES[stored.change],
			current: stored.current,
			receivedAt: fromMicroseconds(stored.receivedAt),
			summary: summarize(record),
			...(before === undefined ? {} : { changedFields: create(FieldMaskSchema, { paths: diff(before, record) }) }),
		});
	}

	/** The record that was current before; undefined when there was none, or when it has been pruned. */
	async #before({ conversationId, previousSequence }: StoredUpdate): Promise<ConversationInfo | undefined> {
		if (previousSequence === undefined) return undefined;
		const known = this.#comparable.get(previousSequence);
		if (known !== undefined) return known;
		const found = await this.#store.get(conversationId, previousSequence);
		// After pruning, what was current as of that sequence can be gone.
		return found?.sequence === previousSequence ? this.#comparableOf(found) : undefined;
	}

	#comparableOf(stored: StoredUpdate): ConversationInfo {
		const known = this.#comparable.get(stored.sequence);
		if (known !== undefined) return known;
		const bytes = recordOf(stored);
		const record = this.#open(bytes);
		this.#comparable.set(stored.sequence, record, bytes.byteLength);
		return record;
	}

	/**
	 * A record in the form that is compared: in plain text, as equal secrets are encrypted differently each time. Where
	 * the key is missing it stays as it is stored, and its secrets count as changed.
	 */
	#open(bytes: Uint8Array): ConversationInfo {
		try {
			return this.#vault.open(bytes, "plaintext");
		} catch (error) {
			if (!(error instanceof ServiceError) || error.kind !== "data_loss") throw error;
			return this.#vault.open(bytes, "encrypted");
		}
	}
}

function recordOf({ sequence, record }: StoredUpdate): Uint8Array {
	if (record === undefined) throw new TypeError(`update ${sequence} was read without its record`);
	return record;
}
