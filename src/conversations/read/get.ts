import type { ConversationInfo } from "../../../gen/conversations/v1/conversation_pb.js";
import { ServiceError } from "../../errors.ts";
import type { RecordVault } from "../../record/secrets/record-vault.ts";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import type { Store, StoredUpdate } from "../../store/store.ts";
import { invalid, uuid } from "./filter.ts";

/** Which record is asked for, and how it is shown. */
export interface GetRequest {
	/** UUID in any form that records may have it in. */
	readonly id: string;
	/** Sequence number as of which the record is asked for; undefined for the current one. */
	readonly sequence: bigint | undefined;
	readonly secrets: SecretsForm;
}

/** A record with the update that brought it. */
export interface FoundConversation<Form> {
	readonly conversation: Form;
	readonly sequence: bigint;
	/** Microseconds since the Unix epoch. */
	readonly receivedAt: bigint;
}

/** Gives the current record of a conversation, or the one that was current at a sequence number. */
export class GetConversation {
	readonly #store: Store;
	readonly #vault: RecordVault;

	constructor(store: Store, vault: RecordVault) {
		this.#store = store;
		this.#vault = vault;
	}

	/**
	 * The record as a message.
	 *
	 * @throws ServiceError `invalid_argument` for an id that is no UUID or a sequence below 1, `not_found` when there is
	 *   no such conversation or was none at that sequence, `out_of_range` when what was current then has been pruned,
	 *   `unavailable` when the store cannot be read, or `data_loss` when secrets cannot be decrypted
	 */
	async get(request: GetRequest): Promise<FoundConversation<ConversationInfo>> {
		const { record, sequence, receivedAt } = await this.#find(request);
		return { conversation: this.#vault.open(record, request.secrets), sequence, receivedAt };
	}

	/**
	 * The encoded record.
	 *
	 * @throws ServiceError as `get` does
	 */
	async getEncoded(request: GetRequest): Promise<FoundConversation<Uint8Array>> {
		const { record, seal, sequence, receivedAt } = await this.#find(request);
		return {
			conversation: this.#vault.openEncoded(record, { redactionVersion: seal, schemaVersion: 0 }, request.secrets),
			sequence,
			receivedAt,
		};
	}

	async #find({ id, sequence }: GetRequest): Promise<StoredUpdate & { record: Uint8Array; seal: number }> {
		const conversationId = uuid(id, "id");
		if (sequence !== undefined && sequence < 1n) throw invalid("sequence", "must be at least 1");
		const found = await this.#store.get(conversationId, sequence);
		const { record, seal } = found ?? {};
		if (found === undefined || record === undefined || seal === undefined)
			throw await this.#missing(conversationId, sequence);
		return { ...found, record, seal };
	}

	async #missing(conversationId: string, sequence: bigint | undefined): Promise<ServiceError> {
		if (sequence === undefined) return new ServiceError("not_found", "There is no such conversation");
		const query = { after: 0n, conversationId, limit: 1, withRecords: false };
		const [first] = await this.#store.listUpdates(query);
		if (first === undefined) return new ServiceError("not_found", "There is no such conversation");
		// Nothing came before a conversation's first record, so nothing before it can have been pruned.
		if (first.previousSequence === undefined)
			return new ServiceError("not_found", "There was no such conversation at that sequence");
		return new ServiceError(
			"out_of_range",
			`What was current at that sequence has been pruned; the oldest update that is kept is ${first.sequence}`,
		);
	}
}
