import { type DescField, type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { ServiceError } from "../../errors.ts";
import { tooManyValues } from "../json/exact-json.ts";
import { MAX_VALUES } from "../json/json-value.ts";

/**
 * Maximum number of fields in an encoded message, at all levels. One element or member of the JSON form takes at most 5
 * fields: those of a map's entry, its key and its value, and in free-form JSON that of the value's kind.
 */
const MAX_FIELDS = 5 * MAX_VALUES;
const MIN_FIELD_BYTES = 2;
/** Minimum size of a message that can have too many fields, in bytes. */
export const MIN_SIZE_OF_TOO_MANY_FIELDS = MAX_FIELDS * MIN_FIELD_BYTES;
/** Nesting depth below which fields are not counted. Protobuf readers refuse deeper messages. */
const MAX_DEPTH = 100;

/**
 * Decodes a request.
 *
 * @throws ServiceError `invalid_argument` when the bytes are not an encoded request, `invalid_record` when it has more
 *   than {@link MAX_VALUES} values
 */
export function decodeIngestRequest<Desc extends DescMessage>(desc: Desc, request: Uint8Array): MessageShape<Desc> {
	try {
		if (hasTooManyFields(request, desc)) throw tooManyValues();
		return fromBinary(desc, request);
	} catch (cause) {
		if (cause instanceof ServiceError) throw cause;
		throw new ServiceError("invalid_argument", `The request cannot be read as a ${desc.typeName}`, { cause });
	}
}

/**
 * Whether an encoded message has so many fields that its JSON form has more than {@link MAX_VALUES} values. Call it
 * before the message is decoded, because an empty message of two bytes takes fifty times as much memory when decoded.
 *
 * @throws Error when the bytes are not an encoded message
 */
export function hasTooManyFields(bytes: Uint8Array, desc: DescMessage): boolean {
	if (bytes.byteLength < MIN_SIZE_OF_TOO_MANY_FIELDS) return false;
	return countFields(new BinaryReader(bytes), bytes.byteLength, fieldsOf(desc), 0) > MAX_FIELDS;
}

/** Message-typed fields of a message or of a map's entry, by number. Each value returns the fields of that type. */
type MessageFields = ReadonlyMap<number, () => MessageFields>;

function countFields(reader: BinaryReader, end: number, fields: MessageFields, depth: number): number {
	let count = 0;
	while (reader.pos < end && count <= MAX_FIELDS) {
		const [number, wireType] = reader.tag();
		const field = fields.get(number);
		count += 1;
		if (field === undefined || wireType !== WireType.LengthDelimited || depth === MAX_DEPTH) {
			reader.skip(wireType, number);
			continue;
		}
		const length = reader.uint32();
		const fieldEnd = reader.pos + length;
		count += countFields(reader, fieldEnd, field(), depth + 1);
		reader.pos = fieldEnd;
	}
	return count;
}

const fieldsByType = new Map<string, MessageFields>();

function fieldsOf(desc: DescMessage): MessageFields {
	return fieldsByType.getOrInsertComputed(desc.typeName, () => new Map(desc.fields.flatMap(messageField)));
}

function messageField({ number, fieldKind, message }: DescField): [number, () => MessageFields][] {
	const value: (() => MessageFields) | undefined = message && (() => fieldsOf(message));
	// Field 2 of a map's entry is the value.
	if (fieldKind === "map") return [[number, () => (value === undefined ? NONE : new Map([[2, value]]))]];
	return value === undefined ? [] : [[number, value]];
}

const NONE: MessageFields = new Map();
