import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";

/** A record as the store keeps it: encoded, and without a secret in plain text. */
export interface ProtectedRecord {
	readonly bytes: Uint8Array;
	/**
	 * Fingerprint of the rules by which its secrets were redacted, a safe integer; 0 when it holds ciphertexts, or parts of
	 * different versions.
	 */
	readonly redactionVersion: number;
}

/**
 * A delta holds the changes from one version of a record to another. It lists the top-level members that change, and
 * has an encoded `ConversationInfo` with only their new values. An unnamed member belongs to the top-level member that
 * its pointer begins with. Those that no top-level field names belong together: the field `unnamed_members` itself stands
 * for them.
 *
 * These functions work on encoded records and deltas without decoding their values. Members are given by their field
 * numbers. The bytes that they return do not share memory with their arguments. They throw an Error for bytes that they
 * cannot read.
 */

/** Fields of a delta, which is encoded as a protobuf message: field numbers of the members, and their values. */
const MEMBER = 1;
const VALUES = 2;

const { leafEventId: LEAF, unnamedMembers: UNNAMED } = ConversationInfoSchema.field;

/** Field numbers of the record's top-level members by name. A pointer begins with such a name. */
const MEMBER_NUMBERS = new Map(ConversationInfoSchema.fields.map(({ number, name }) => [name, number]));

/**
 * Encodes a delta.
 *
 * @param members those that it replaces; one without a value in `values` becomes unset
 * @param values encoded `ConversationInfo` with the new values of these members, and the unnamed members in them
 */
export function encodeDelta(members: Iterable<number>, values: Uint8Array): Uint8Array {
	const writer = new BinaryWriter();
	for (const member of members) writer.tag(MEMBER, WireType.Varint).uint32(member);
	return writer.tag(VALUES, WireType.LengthDelimited).bytes(values).finish();
}

/** Returns an encoded record with only some top-level members of another one, and the unnamed members in them. */
export function pickMembers(record: Uint8Array, members: ReadonlySet<number>): Uint8Array {
	return concatBytes(piecesOf(record, (member) => members.has(member)));
}

/** Returns the whole record that results from applying a delta to its base record. */
export function mergeRecord(base: Uint8Array, delta: Uint8Array): Uint8Array {
	const { members, values } = decodeDelta(delta);
	return concatBytes([...piecesWithout(base, members), values]);
}

/** Returns one delta with the effect of applying `first` and then `second`. */
export function mergeDeltas(first: Uint8Array, second: Uint8Array): Uint8Array {
	const [before, after] = [decodeDelta(first), decodeDelta(second)];
	const values = concatBytes([...piecesWithout(before.values, after.members), after.values]);
	return encodeDelta(before.members.union(after.members), values);
}

/**
 * Merges a stored record or delta with the delta that follows it. If their versions differ, that of the result is 0, which no
 * release has, so that it is read by the rules of the release that reads it.
 *
 * @param merge {@link mergeRecord} when `one` is a record, {@link mergeDeltas} when it is a delta
 */
export function mergeProtected(
	one: ProtectedRecord,
	delta: ProtectedRecord,
	merge: typeof mergeRecord,
): ProtectedRecord {
	const { redactionVersion } = delta;
	return {
		bytes: merge(one.bytes, delta.bytes),
		redactionVersion: one.redactionVersion === redactionVersion ? redactionVersion : 0,
	};
}

/** Returns a record with another `leaf_event_id`. It is appended: protobuf readers use the last value of a field. */
export function withLeaf(record: Uint8Array, eventId: string): Uint8Array {
	return concatBytes([record, leafField(eventId)]);
}

export function deltaWithLeaf(delta: Uint8Array, eventId: string): Uint8Array {
	return mergeDeltas(delta, encodeDelta([LEAF.number], leafField(eventId)));
}

/**
 * Returns the encoded values of some top-level members that are messages or texts, by field number. Members without a
 * value are missing.
 */
export function readMembers(record: Uint8Array, members: ReadonlySet<number>): Map<number, Uint8Array> {
	const values = new Map<number, Uint8Array>();
	const reader = new BinaryReader(record);
	while (reader.pos < reader.len) {
		const [number, wireType] = reader.tag();
		// The last value of a field counts.
		if (members.has(number) && wireType === WireType.LengthDelimited) values.set(number, reader.bytes());
		else reader.skip(wireType, number);
	}
	return values;
}

function readTexts(record: Uint8Array, member: number): readonly string[] {
	const texts: string[] = [];
	const reader = new BinaryReader(record);
	while (reader.pos < reader.len) {
		const [number, wireType] = reader.tag();
		if (number === member) texts.push(reader.string());
		else reader.skip(wireType, number);
	}
	return texts;
}

/** Returns an encoded record with other texts of a repeated top-level member, and without the unnamed members in it. */
function withTexts(record: Uint8Array, member: number, texts: readonly string[]): Uint8Array {
	const writer = new BinaryWriter();
	for (const text of texts) writer.tag(member, WireType.LengthDelimited).string(text);
	return concatBytes([...piecesWithout(record, new Set([member])), writer.finish()]);
}

/** Reads the pointer of an encoded entry of `unnamed_members`; undefined when the entry has none. */
function pointerOf(entry: Uint8Array): string | undefined {
	const reader = new BinaryReader(entry);
	// Field 1 of a map's entry is the key.
	const [number] = reader.tag();
	return number === 1 ? reader.string() : undefined;
}

/** Concatenates byte strings into a new buffer that holds nothing else. */
export function concatBytes(parts: readonly Uint8Array[]): Uint8Array {
	const whole = new Uint8Array(parts.reduce((size, { byteLength }) => size + byteLength, 0));
	let end = 0;
	for (const part of parts) {
		whole.set(part, end);
		end += part.byteLength;
	}
	return whole;
}

/** Returns the field numbers of the members that a delta replaces, and the encoded record with their new values. */
export function decodeDelta(delta: Uint8Array): { readonly members: ReadonlySet<number>; readonly values: Uint8Array } {
	const members = new Set<number>();
	let values: Uint8Array | undefined;
	const reader = new BinaryReader(delta);
	while (reader.pos < reader.len) {
		const [number] = reader.tag();
		if (number === MEMBER) members.add(reader.uint32());
		else if (number === VALUES) values = reader.bytes();
		else throw new Error(`a delta of a record has no field ${number}`);
	}
	if (values === undefined) throw new Error("the delta of a record is truncated");
	return { members, values };
}

/** Returns the pieces of an encoded record without some top-level members, and the unnamed members in them. */
function piecesWithout(record: Uint8Array, members: ReadonlySet<number>): Uint8Array[] {
	return piecesOf(record, (member) => !members.has(member));
}

/**
 * Returns the pieces of an encoded record that hold the top-level members to keep, without copying them.
 *
 * @param keeps receives the number of a member's field; that of `unnamed_members` for a member outside of the named ones
 */
function piecesOf(record: Uint8Array, keeps: (member: number) => boolean): Uint8Array[] {
	const pieces: Uint8Array[] = [];
	const reader = new BinaryReader(record);
	let keptFrom: number | undefined;
	while (reader.pos < reader.len) {
		const start = reader.pos;
		const [number, wireType] = reader.tag();
		let member = number;
		if (number === UNNAMED.number)
			member = MEMBER_NUMBERS.get(pointerOf(reader.bytes())?.split("/", 2)[1] ?? "") ?? UNNAMED.number;
		else reader.skip(wireType, number);
		if (keeps(member)) keptFrom ??= start;
		else if (keptFrom !== undefined) {
			pieces.push(record.subarray(keptFrom, start));
			keptFrom = undefined;
		}
	}
	if (keptFrom !== undefined) pieces.push(record.subarray(keptFrom));
	return pieces;
}

function leafField(eventId: string): Uint8Array {
	return new BinaryWriter().tag(LEAF.number, WireType.LengthDelimited).string(eventId).finish();
}

/** What an encoded record says of other conversations. */

const {
	parentConversationId: PARENT,
	forkedFromConversationId: SOURCE,
	forkedFromEventId: SOURCE_EVENT,
	subConversationIds: { number: CHILDREN },
} = ConversationInfoSchema.field;
const RELATIONS: ReadonlySet<number> = new Set([PARENT.number, SOURCE.number]);

/**
 * Returns the ids of the children that an encoded record names, in lower case; none for bytes that are not a record.
 *
 * @param isDelta whether it is an encoded delta
 */
export function childrenIn(record: Uint8Array, isDelta: boolean): readonly string[] {
	try {
		const values = isDelta ? decodeDelta(record).values : record;
		return [...new Set(readTexts(values, CHILDREN).map((id) => id.toLowerCase()))];
	} catch {
		return [];
	}
}

/**
 * Removes a conversation as the parent, as the source of a fork and as a child from an encoded record.
 *
 * @returns undefined when the record does not name it
 * @throws Error for bytes that are not a record
 */
export function forgetInRecord(record: Uint8Array, conversationId: string): Uint8Array | undefined {
	const isIt = (id: string) => id.toLowerCase() === conversationId;
	const named = new Set<number>();
	for (const [member, value] of readMembers(record, RELATIONS))
		if (isIt(Buffer.from(value).toString())) named.add(member);
	if (named.has(SOURCE.number)) named.add(SOURCE_EVENT.number);
	const children = readTexts(record, CHILDREN);
	const others = children.filter((id) => !isIt(id));
	if (named.size === 0 && others.length === children.length) return undefined;
	const without = concatBytes(piecesWithout(record, named));
	return others.length === children.length ? without : withTexts(without, CHILDREN, others);
}

/** Does the same as {@link forgetInRecord} with an encoded delta. The delta goes on to set the members, to none. */
export function forgetInDelta(delta: Uint8Array, conversationId: string): Uint8Array | undefined {
	const { members, values } = decodeDelta(delta);
	const forgotten = forgetInRecord(values, conversationId);
	return forgotten && encodeDelta(members, forgotten);
}
