import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import type { ProtectedRecord } from "./protected-record.ts";

/**
 * What one version of a record changes in another: a delta names top-level members of the record and gives an encoded
 * `ConversationInfo` with their new values and no others. Unnamed members belong to the top-level member that their
 * pointer begins with.
 *
 * These functions work on encoded records and deltas without decoding their values. What they return has memory of its
 * own. They throw an Error when the bytes are neither.
 */

/** A delta is encoded as a protobuf message of these two fields: field numbers, and bytes. */
const MEMBER = 1;
const VALUES = 2;

const { leafEventId: LEAF, unnamedMembers: UNNAMED } = ConversationInfoSchema.field;

/** Names of the record's members, as pointers begin with them, by field number. */
const NAMES = new Map(ConversationInfoSchema.fields.map(({ number, name }) => [number, name]));

interface Delta {
	readonly members: ReadonlySet<number>;
	readonly values: Uint8Array;
}

/**
 * Encodes a delta.
 *
 * @param members field numbers of the members that it replaces; one without a value in `values` is unset
 * @param values encoded `ConversationInfo` with the new values of these members, and their unnamed members
 */
export function encodeDelta(members: Iterable<number>, values: Uint8Array): Uint8Array {
	const writer = new BinaryWriter();
	for (const member of members) writer.tag(MEMBER, WireType.Varint).uint32(member);
	return writer.tag(VALUES, WireType.LengthDelimited).bytes(values).finish();
}

/** The whole record that a delta makes of its base. */
export function mergeRecord(base: Uint8Array, delta: Uint8Array): Uint8Array {
	const { members, values } = decodeDelta(delta);
	return concatBytes([...without(base, members), values]);
}

/** The delta that does what `first` does and then `second`. */
export function mergeDeltas(first: Uint8Array, second: Uint8Array): Uint8Array {
	const [before, after] = [decodeDelta(first), decodeDelta(second)];
	const values = concatBytes([...without(before.values, after.members), after.values]);
	return encodeDelta(before.members.union(after.members), values);
}

/**
 * A stored record or delta with a delta after it, as one. Versions that differ become 0: it is read by today's rules.
 *
 * @param merge {@link mergeRecord} or {@link mergeDeltas}
 */
export function combined(one: ProtectedRecord, delta: ProtectedRecord, merge: typeof mergeRecord): ProtectedRecord {
	const { redactionVersion, schemaVersion } = delta;
	return {
		bytes: merge(one.bytes, delta.bytes),
		redactionVersion: one.redactionVersion === redactionVersion ? redactionVersion : 0,
		schemaVersion: one.schemaVersion === schemaVersion ? schemaVersion : 0,
	};
}

/** A record with another `leaf_event_id`. It is appended, and of a field that comes twice the last one counts. */
export function withLeaf(record: Uint8Array, eventId: string): Uint8Array {
	return concatBytes([record, leafField(eventId)]);
}

/** A delta that also sets `leaf_event_id`. */
export function deltaWithLeaf(delta: Uint8Array, eventId: string): Uint8Array {
	return mergeDeltas(delta, encodeDelta([LEAF.number], leafField(eventId)));
}

/** The pointer of an entry of `unnamed_members`; undefined when it has none. */
export function pointerOf(entry: Uint8Array): string | undefined {
	const reader = new BinaryReader(entry);
	// An entry of a map: 1 is the key.
	const [number] = reader.tag();
	return number === 1 ? reader.string() : undefined;
}

/** Byte strings one after the other, in memory that holds nothing else. */
export function concatBytes(parts: readonly Uint8Array[]): Uint8Array {
	const whole = new Uint8Array(parts.reduce((size, { byteLength }) => size + byteLength, 0));
	let end = 0;
	for (const part of parts) {
		whole.set(part, end);
		end += part.byteLength;
	}
	return whole;
}

function decodeDelta(delta: Uint8Array): Delta {
	const members = new Set<number>();
	let values: Uint8Array | undefined;
	const reader = new BinaryReader(delta);
	while (reader.pos < reader.len) {
		const [number] = reader.tag();
		if (number === MEMBER) members.add(reader.uint32());
		else if (number === VALUES) values = reader.bytes();
		else throw new Error(`a delta of a record has no field ${number}`);
	}
	if (values === undefined) throw new Error("the delta of a record is cut off");
	return { members, values };
}

/** The pieces of an encoded record that are left without some members. */
function without(record: Uint8Array, members: ReadonlySet<number>): Uint8Array[] {
	const names = new Set([...members].map((number) => NAMES.get(number)));
	const pieces: Uint8Array[] = [];
	const reader = new BinaryReader(record);
	let kept = 0;
	while (reader.pos < reader.len) {
		const start = reader.pos;
		const [number, wireType] = reader.tag();
		let isReplaced = members.has(number);
		if (number === UNNAMED.number) isReplaced = names.has(pointerOf(reader.bytes())?.split("/", 2)[1]);
		else reader.skip(wireType, number);
		if (!isReplaced) continue;
		pieces.push(record.subarray(kept, start));
		kept = reader.pos;
	}
	pieces.push(record.subarray(kept));
	return pieces;
}

function leafField(eventId: string): Uint8Array {
	return new BinaryWriter().tag(LEAF.number, WireType.LengthDelimited).string(eventId).finish();
}
