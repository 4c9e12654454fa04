import { ServiceError } from "../errors.ts";
import type { NewUpdate, RecordColumns } from "./store.ts";
import { uuidBytes } from "./uuid.ts";

/**
 * An update as two byte strings: it crosses from the thread that makes it to the one that stores it without being taken
 * apart on the way. The head is all but the record. The store takes the memory of both over.
 */
export type EncodedUpdate = readonly [head: Uint8Array, record: Uint8Array];

/** What stands beside the record in an encoded update. */
export interface UpdateHead
	extends Pick<NewUpdate, "receivedAt" | "seal">,
		Pick<RecordColumns, "status" | "updatedAt"> {
	/** The 16 bytes of the conversation's id. */
	readonly id: Uint8Array;
	/** Empty when there is none. */
	readonly digest: Uint8Array;
	readonly summary: Uint8Array;
	/** What {@link decodeColumns} reads. */
	readonly columns: Uint8Array;
}

/** The columns that only lists need. */
export type ListColumns = Omit<RecordColumns, "status" | "updatedAt">;

/** Offsets in a head; integers are little-endian. What has a length of its own follows in the order of the lengths. */
const at = {
	id: 0,
	receivedAt: 16,
	updatedAt: 24,
	seal: 32,
	status: 40,
	digest: 44,
	summary: 48,
	columns: 52,
	rest: 56,
};
/** Stands for a time that is missing. */
const noTime = -(2n ** 63n);
const noDigest = new Uint8Array();

/**
 * @throws ServiceError `invalid_argument` when the conversation's id is not a lower-case UUID with dashes
 * @throws RangeError when a time has more than 64 bits
 */
export function encodeUpdate(update: NewUpdate): EncodedUpdate {
	const { columns, digest = noDigest, record, summary } = update;
	const id = uuidBytes(update.conversationId);
	if (id === undefined)
		throw new ServiceError("invalid_argument", "the conversation id is not a lower-case UUID with dashes");
	const columnsText = encodeColumns(columns);
	const statusBytes = Buffer.byteLength(columns.status);
	const columnsBytes = Buffer.byteLength(columnsText);
	const head = Buffer.allocUnsafe(at.rest + statusBytes + digest.byteLength + summary.byteLength + columnsBytes);
	head.set(id, at.id);
	head.writeBigInt64LE(update.receivedAt, at.receivedAt);
	head.writeBigInt64LE(columns.updatedAt ?? noTime, at.updatedAt);
	head.writeDoubleLE(update.seal, at.seal);
	head.writeUInt32LE(statusBytes, at.status);
	head.writeUInt32LE(digest.byteLength, at.digest);
	head.writeUInt32LE(summary.byteLength, at.summary);
	head.writeUInt32LE(columnsBytes, at.columns);
	let end = at.rest;
	end += head.write(columns.status, end);
	head.set(digest, end);
	end += digest.byteLength;
	head.set(summary, end);
	end += summary.byteLength;
	head.write(columnsText, end);
	return [head, record];
}

/** The byte strings of an encoded update after they crossed. */
export function encodedUpdate([head, record]: readonly Uint8Array[]): EncodedUpdate {
	if (head === undefined || record === undefined) throw new TypeError("an update has two byte strings");
	return [head, record];
}

/** Reads the head of an encoded update; its byte strings are views of it. */
export function decodeHead(bytes: Uint8Array): UpdateHead {
	const head = bufferOf(bytes);
	const updatedAt = head.readBigInt64LE(at.updatedAt);
	const statusEnd = at.rest + head.readUInt32LE(at.status);
	const digestEnd = statusEnd + head.readUInt32LE(at.digest);
	const summaryEnd = digestEnd + head.readUInt32LE(at.summary);
	const columnsEnd = summaryEnd + head.readUInt32LE(at.columns);
	return {
		id: head.subarray(at.id, at.receivedAt),
		receivedAt: head.readBigInt64LE(at.receivedAt),
		updatedAt: updatedAt === noTime ? undefined : updatedAt,
		seal: head.readDoubleLE(at.seal),
		status: head.toString("utf8", at.rest, statusEnd),
		digest: head.subarray(statusEnd, digestEnd),
		summary: head.subarray(digestEnd, summaryEnd),
		columns: head.subarray(summaryEnd, columnsEnd),
	};
}

/** A JSON array; null where a value is missing. */
function encodeColumns({ agentKind, model, createdAt, tags, title, parentId }: ListColumns): string {
	if (createdAt !== undefined && BigInt.asIntN(64, createdAt) !== createdAt)
		throw new RangeError("a time has more than 64 bits");
	// As text, because JSON.parse reads numbers with 53 bits only.
	return JSON.stringify([agentKind, model, createdAt?.toString(), title, parentId, tags]);
}

/** @throws SyntaxError, TypeError when these are not encoded columns */
export function decodeColumns(columns: Uint8Array): ListColumns {
	const values: unknown = JSON.parse(bufferOf(columns).toString());
	if (!Array.isArray(values)) throw new TypeError("columns are an array");
	const [agentKind, model, createdAt, title, parentId, tags] = values;
	const created = optionalText(createdAt);
	return {
		agentKind: text(agentKind),
		model: text(model),
		createdAt: created === undefined ? undefined : BigInt(created),
		title: optionalText(title),
		parentId: optionalText(parentId),
		tags: texts(tags),
	};
}

function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
	return Buffer.from(buffer, byteOffset, byteLength);
}

function text(value: unknown): string {
	if (typeof value !== "string") throw new TypeError("a column is a text");
	return value;
}

function optionalText(value: unknown): string | undefined {
	return value === null ? undefined : text(value);
}

function texts(value: unknown): Readonly<Record<string, string>> {
	if (typeof value !== "object" || value === null) throw new TypeError("tags are an object");
	return Object.fromEntries(Object.entries(value).map(([key, tag]) => [key, text(tag)]));
}
