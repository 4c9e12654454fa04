import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { toPointer } from "./json/pointer.ts";

/** Numbers of the delta's own fields: the replaced fields of the record, and a record that has nothing but these. */
const REPLACED = 1;
const PARTIAL = 2;

const { unnamedMembers, leafEventId } = ConversationInfoSchema.field;

/** A change of a record: some of its top-level members, with what no field names below them, are those of another one. */
export function encodeDelta(members: readonly number[], partial: Uint8Array): Uint8Array {
	const writer = new BinaryWriter();
	for (const member of members) writer.tag(REPLACED, WireType.Varint).uint32(member);
	return writer.tag(PARTIAL, WireType.LengthDelimited).bytes(partial).finish();
}

/** The record that a delta makes of another one. */
export function mergeRecord(base: Uint8Array, delta: Uint8Array): Uint8Array {
	const { members, partial } = decodeDelta(delta);
	return Buffer.concat([without(base, members), partial]);
}

/** The delta that two make, one after the other. */
export function mergeDeltas(first: Uint8Array, second: Uint8Array): Uint8Array {
	const [one, other] = [decodeDelta(first), decodeDelta(second)];
	const partial = Buffer.concat([without(one.partial, other.members), other.partial]);
	return encodeDelta([...new Set([...one.members, ...other.members])], partial);
}

/** A record with another leaf. */
export function withLeaf(record: Uint8Array, eventId: string): Uint8Array {
	const leaf = new BinaryWriter().tag(leafEventId.number, WireType.LengthDelimited).string(eventId).finish();
	return Buffer.concat([record, leaf]);
}

function decodeDelta(delta: Uint8Array): { readonly members: readonly number[]; readonly partial: Uint8Array } {
	const members: number[] = [];
	let partial = new Uint8Array();
	const reader = new BinaryReader(delta);
	while (reader.pos < reader.len) {
		const [number] = reader.tag();
		if (number === REPLACED) members.push(reader.uint32());
		else partial = new Uint8Array(reader.bytes());
	}
	return { members, partial };
}

/** The fields of an encoded record but some, and but the unnamed members below these. */
function without(record: Uint8Array, members: readonly number[]): Uint8Array {
	const removed = new Set(members);
	const names = ConversationInfoSchema.fields.filter(({ number }) => removed.has(number)).map(({ name }) => name);
	const kept: Uint8Array[] = [];
	const reader = new BinaryReader(record);
	while (reader.pos < reader.len) {
		const start = reader.pos;
		const [number, wireType] = reader.tag();
		const content = reader.pos;
		reader.skip(wireType, number);
		if (removed.has(number)) continue;
		if (number === unnamedMembers.number && isBelow(record.subarray(content, reader.pos), names)) continue;
		kept.push(record.subarray(start, reader.pos));
	}
	return Buffer.concat(kept);
}

/** Whether the entry of an unnamed member stands below one of some members. */
function isBelow(entry: Uint8Array, names: readonly string[]): boolean {
	const reader = new BinaryReader(new BinaryReader(entry).bytes());
	const [keyNumber] = reader.tag();
	const pointer = keyNumber === 1 ? reader.string() : "";
	return names.some((name) => pointer.startsWith(`${toPointer([name])}/`));
}
