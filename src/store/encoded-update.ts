import { ServiceError } from "../errors.ts";
import type { NewUpdate, RecordColumns } from "./store.ts";
import { uuidBytes } from "./uuid.ts";

/**
 * An update as byte strings: it crosses from the thread that makes it to the one that stores it without being taken
 * apart on the way.
 */
export type EncodedUpdate = readonly [
	/** What {@link decodeHead} reads. */
	head: Uint8Array,
	/** What {@link decodeColumns} reads. */
	columns: Uint8Array,
	/** Empty when there is none. */
	digest: Uint8Array,
	record: Uint8Array,
	summary: Uint8Array,
];

/** What storing an update must know of it. */
export interface UpdateHead
	extends Pick<NewUpdate, "receivedAt" | "seal">,
		Pick<RecordColumns, "status" | "updatedAt"> {
	/** The 16 bytes of the conversation's id. */
	readonly id: Uint8Array;
}

/** The columns that only lists need. */
export type ListColumns = Omit<RecordColumns, "status" | "updatedAt">;

/** Offsets in a head; integers are little-endian, and the status follows as UTF-8. */
const receivedAt = 16;
const seal = 24;
const updatedAt = 32;
const status = 40;
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
	const head = Buffer.allocUnsafe(status + Buffer.byteLength(columns.status));
	head.set(id);
	head.writeBigInt64LE(update.receivedAt, receivedAt);
	head.writeDoubleLE(update.seal, seal);
	head.writeBigInt64LE(columns.updatedAt ?? noTime, updatedAt);
	head.write(columns.status, status);
	return [head, encodeColumns(columns), digest, record, summary];
}

/** The byte strings of an encoded update after they crossed. */
export function encodedUpdate([head, columns, digest, record, summary]: readonly Uint8Array[]): EncodedUpdate {
	if (!head || !columns || !digest || !record || !summary) throw new TypeError("an update has five byte strings");
	return [head, columns, digest, record, summary];
}

export function decodeHead(bytes: Uint8Array): UpdateHead {
	const head = bufferOf(bytes);
	const time = head.readBigInt64LE(updatedAt);
	return {
		id: bytes.subarray(0, receivedAt),
		receivedAt: head.readBigInt64LE(receivedAt),
		seal: head.readDoubleLE(seal),
		updatedAt: time === noTime ? undefined : time,
		status: head.toString("utf8", status),
	};
}

/** A JSON array; null where a value is missing. */
function encodeColumns({ agentKind, model, createdAt, tags, title, parentId }: ListColumns): Uint8Array {
	if (createdAt !== undefined && BigInt.asIntN(64, createdAt) !== createdAt)
		throw new RangeError("a time has more than 64 bits");
	// As text, because JSON.parse reads numbers with 53 bits only.
	return Buffer.from(JSON.stringify([agentKind, model, createdAt?.toString(), title, parentId, tags]));
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
