import {
	type DescField,
	type DescMessage,
	fromBinary,
	type Message,
	type MessageShape,
	toBinary,
} from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { ConversationInfo } from "../../../gen/conversations/v1/conversation_pb.js";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { invalid, isDataLoss, ServiceError } from "../../errors.ts";
import { stringifyExactJson } from "../../record/json/exact-json.ts";
import { jsonFormOf } from "../../record/json/json-form.ts";
import type { ExactJson } from "../../record/json/json-value.ts";
import { planMessage } from "../../record/plan.ts";
import type { RecordFormat } from "../../record/record-format.ts";
import type { RecordVault } from "../../record/secrets/record-vault.ts";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import { sumOfCosts } from "../../record/stats.ts";
import type { Store } from "../../store/store.ts";
import type { StoredRecord, Unreadable } from "../../store/values.ts";
import { uuid } from "./filter.ts";

interface RecordSource {
	readonly conversationId: string;
	readonly sequence: bigint;
	readonly record: StoredRecord | Unreadable | undefined;
}

/** Where a record or an event is stored. The sequence number is that of its log. */
export type StoredAt = Pick<RecordSource, "conversationId" | "sequence">;

/** Called with each stored record or event that could not be read. */
export type OnUnreadable = (stored: StoredAt & { readonly error: ServiceError }) => void;

/** Returns the result of `read`. If it throws a ServiceError `data_loss`, calls the callback and returns undefined. */
export function tryRead<Result>(source: StoredAt, onUnreadable: OnUnreadable, read: () => Result): Result | undefined {
	try {
		return read();
	} catch (error) {
		if (!isDataLoss(error)) throw error;
		onUnreadable({ conversationId: source.conversationId, sequence: source.sequence, error });
		return undefined;
	}
}

/** @throws ServiceError `data_loss` when the store could not read the record */
export function storedRecord({ conversationId, sequence, record }: RecordSource): StoredRecord {
	if (record === undefined) throw new TypeError(`update ${sequence} was read without its record`);
	if (!("unreadable" in record)) return record;
	const cause = new Error(record.unreadable);
	throw new ServiceError("data_loss", "The stored record cannot be read", { conversationId, cause });
}

/** Bytes of a stored record; 0 when it cannot be read or was not requested. */
export function recordSize(record: RecordSource["record"]): number {
	return record === undefined || "unreadable" in record ? 0 : record.bytes.byteLength;
}

export interface RecordOpening {
	readonly format: RecordFormat;
	readonly vault: RecordVault;
	readonly onUnreadable: OnUnreadable;
}

/**
 * Opens a record for comparison. With `secretPaths`, its secrets are in plain text, because equal secrets have different
 * ciphertexts. When one cannot be decrypted, all of them stay encrypted, so they can count as changed.
 */
export function openComparable(vault: RecordVault, bytes: Uint8Array, secretPaths: boolean): ConversationInfo {
	if (!secretPaths) return vault.open(bytes, "redacted");
	try {
		return vault.open(bytes, "plaintext");
	} catch (error) {
		if (!isDataLoss(error)) throw error;
		return vault.open(bytes, "encrypted");
	}
}

const summaryPlan = planMessage(ConversationSummarySchema);

export function encodeSummary(summary: ConversationSummary): ExactJson {
	return jsonFormOf(summaryPlan, summary);
}

/** @throws ServiceError `data_loss` when the bytes are no encoded summary */
export function decodeSummary(bytes: Uint8Array): ConversationSummary {
	try {
		const summary = fromBinary(ConversationSummarySchema, bytes);
		// Release 1.0.0 added up doubles.
		if (summary.accumulatedCost !== undefined) summary.accumulatedCost = sumOfCosts([summary.accumulatedCost]);
		return summary;
	} catch (cause) {
		throw new ServiceError("data_loss", "The stored summary cannot be read", { cause });
	}
}

/**
 * Sets a message field of a message to bytes that encode its value, so that they need not be decoded. The encoded message
 * has the field; the message itself has it among its unknown fields.
 */
export function setEncodedField(message: Message, field: DescField, bytes: Uint8Array): void {
	// Not by the writer of the library alone, which copies large bytes several times while its buffer grows.
	const data = Buffer.concat([new BinaryWriter().uint32(bytes.byteLength).finish(), bytes]);
	message.$unknown = [...(message.$unknown ?? []), { no: field.number, wireType: WireType.LengthDelimited, data }];
}

/** Does the same as `toBinary`, but copies the fields that {@link setEncodedField} has set only once. */
export function encodeMessage<Desc extends DescMessage>(desc: Desc, message: MessageShape<Desc>): Uint8Array {
	const encoded = message.$unknown;
	if (encoded === undefined) return toBinary(desc, message);
	const known = toBinary(desc, message, { writeUnknownFields: false });
	const fields = encoded.flatMap(({ no, wireType, data }) => [new BinaryWriter().tag(no, wireType).finish(), data]);
	return Buffer.concat([known, ...fields]);
}

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
	const { format, vault } = opening;
	return await readRecord(store, opening, request, ({ bytes }) =>
		stringifyExactJson(format.toJson(vault.open(bytes, request.secrets))),
	);
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
