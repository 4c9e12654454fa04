import { isDataLoss, ServiceError } from "../../errors.ts";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import type { Store } from "../../store/store.ts";
import type { StoredRecord } from "../../store/values.ts";
import { invalid, uuid } from "./filter.ts";
import { type RecordOpening, recordJson, storedRecord } from "./records.ts";

export const FIRST_SEQUENCE = 1n;

export interface GetRequest {
	/** UUID in any form that is valid in a record. */
	readonly id: string;
	/** Sequence number as of which the record is requested; undefined for the current record. */
	readonly sequence: bigint | undefined;
	readonly secrets: SecretsForm;
}

export interface FoundConversation<Form> {
	readonly conversation: Form;
	readonly sequence: bigint;
	/** Microseconds since the Unix epoch. */
	readonly receivedAt: bigint;
}

type RecordStore = Pick<Store, "get" | "updates" | "events">;

/**
 * Returns the current record of a conversation, or the one that was current at a sequence number, encoded.
 *
 * @throws ServiceError `invalid_argument` for an id that is no UUID or a sequence below 1, `not_found` when there is
 *   no such conversation or was none at that sequence, `out_of_range` when the record at that sequence was pruned,
 *   `unavailable` when the store cannot be read, or `data_loss` when the stored record cannot be read or decrypted
 */
export async function getEncoded(
	store: RecordStore,
	opening: RecordOpening,
	request: GetRequest,
): Promise<FoundConversation<Uint8Array>> {
	return await readRecord(store, opening, request, (record) =>
		opening.vault.openEncoded(record.bytes, record, request.secrets),
	);
}

/** As {@link getEncoded}, but as JSON text in the webhook's form. */
export async function getJson(
	store: RecordStore,
	opening: RecordOpening,
	request: GetRequest,
): Promise<FoundConversation<string>> {
	return await readRecord(store, opening, request, (record) => recordJson(opening, record, request.secrets));
}

async function readRecord<Form>(
	store: RecordStore,
	{ onUnreadable }: RecordOpening,
	{ id, sequence: asOf }: GetRequest,
	read: (record: StoredRecord) => Form,
): Promise<FoundConversation<Form>> {
	const conversationId = uuid(id, "id");
	if (asOf !== undefined && asOf < FIRST_SEQUENCE) throw invalid("sequence", `must be at least ${FIRST_SEQUENCE}`);
	const found = await store.get(conversationId, asOf);
	if (found === undefined) throw await missingError(store, conversationId, asOf);
	const { sequence, receivedAt } = found;
	try {
		return { conversation: read(storedRecord(found)), sequence, receivedAt };
	} catch (error) {
		if (isDataLoss(error)) onUnreadable({ conversationId, sequence, error });
		throw error;
	}
}

async function missingError(
	store: RecordStore,
	conversationId: string,
	sequence: bigint | undefined,
): Promise<ServiceError> {
	const [event] = await store.events.list({ after: 0n, conversationId, limit: 1 });
	if (sequence === undefined)
		return new ServiceError(
			"not_found",
			event === undefined
				? "There is no such conversation"
				: "There is no record of this conversation, but there are events: every record that was posted was refused or lost",
		);
	const query = { after: sequence, conversationId, limit: 1, withRecords: false };
	const [next] = await store.updates.list(query);
	if (next === undefined) return new ServiceError("not_found", "There is no such conversation");
	// `next` is the first update of the conversation, so no earlier one can have been pruned.
	if (next.previousSequence === undefined)
		return new ServiceError("not_found", "There was no such conversation at that sequence");
	return new ServiceError(
		"out_of_range",
		`The update that was current at that sequence has been pruned; the oldest later update that is kept has the sequence ${next.sequence}`,
	);
}
