import type { ConversationInfo } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { deriveBinaryEncoder } from "../record/binary.ts";
import type { Appended, NewUpdate, Store } from "../store/store.ts";
import { columnsOf } from "./columns.ts";
import { summarize } from "./summary.ts";
import type { RecordVault } from "./vault.ts";

/** The one handler of conversation updates: every transport hands it a checked record. */
export class Ingest {
	readonly #store: Store;
	readonly #vault: RecordVault;
	readonly #encodeSummary = deriveBinaryEncoder(ConversationSummarySchema);

	constructor(store: Store, vault: RecordVault) {
		this.#store = store;
		this.#vault = vault;
	}

	/**
	 * Keeps a record. Resolves when it is on disk.
	 *
	 * @param record a checked record with its defaults filled in; it is changed
	 * @throws ServiceError `unavailable` when it could not be stored; then nothing of it was kept
	 */
	async ingest(record: ConversationInfo): Promise<Appended> {
		return await this.#store.append(this.#update(record));
	}

	#update(record: ConversationInfo): NewUpdate {
		const summary = summarize(record);
		const { bytes, digest } = this.#vault.seal(record);
		return {
			conversationId: summary.id,
			digest,
			record: bytes,
			summary: this.#encodeSummary(summary),
			columns: columnsOf(summary),
			receivedAt: BigInt(Date.now()) * 1000n,
		};
	}
}
