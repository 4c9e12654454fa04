import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
	type ConversationInfo,
	ConversationInfoSchema,
	ConversationExecutionStatus as Status,
} from "../../gen/conversations/v1/conversation_pb.js";
import {
	deltaWithLeaf,
	encodeDelta,
	mergeDeltas,
	mergeRecord,
	pickMembers,
	withLeaf,
} from "../../src/record/record-delta.ts";

type Members = MessageInitShape<typeof ConversationInfoSchema>;

const { field } = ConversationInfoSchema;
const NUMBERS = {
	title: field.title.number,
	executionStatus: field.executionStatus.number,
	tags: field.tags.number,
	leafEventId: field.leafEventId.number,
};
const NAMES = { title: "title", executionStatus: "execution_status", tags: "tags", leafEventId: "leaf_event_id" };
type Name = keyof typeof NUMBERS;
const names: readonly Name[] = ["title", "executionStatus", "tags", "leafEventId"];

const encode = (record: Members) => toBinary(ConversationInfoSchema, create(ConversationInfoSchema, record));
const decode = (bytes: Uint8Array) => fromBinary(ConversationInfoSchema, bytes);
const text = (value: string) => create(ValueSchema, { kind: { case: "stringValue", value } });

/** Random values of some members, and the members below which there is an unnamed member with `value`. */
const members = fc
	.record({
		title: fc.option(fc.string(), { nil: undefined }),
		executionStatus: fc.option(fc.constantFrom(Status.IDLE, Status.RUNNING), { nil: undefined }),
		tags: fc.dictionary(fc.constantFrom("a", "b"), fc.string({ maxLength: 3 })),
		leafEventId: fc.option(fc.string(), { nil: undefined }),
		unnamed: fc.subarray(names.slice()),
		value: fc.string(),
	})
	.map(({ unnamed, value, ...fields }) => ({ fields, unnamed, value }));

type Generated = typeof members extends fc.Arbitrary<infer Value> ? Value : never;

function recordOf({ fields, unnamed, value }: Generated, only: readonly Name[]): ConversationInfo {
	const { tags, title, executionStatus, leafEventId } = fields;
	const has = (name: Name) => only.includes(name);
	return create(ConversationInfoSchema, {
		...(has("title") && title !== undefined ? { title } : {}),
		...(has("executionStatus") && executionStatus !== undefined ? { executionStatus } : {}),
		...(has("leafEventId") && leafEventId !== undefined ? { leafEventId } : {}),
		...(has("tags") ? { tags } : {}),
		unnamedMembers: Object.fromEntries(unnamed.filter(has).map((name) => [`/${NAMES[name]}/more`, text(value)])),
	});
}

/** Reference implementation: returns a record in which the members `only` are replaced by those of `change`. */
function changed(record: ConversationInfo, only: readonly Name[], change: ConversationInfo): ConversationInfo {
	const pick = <Key extends Name>(name: Key) => (only.includes(name) ? change[name] : record[name]);
	const [title, executionStatus, leafEventId] = [pick("title"), pick("executionStatus"), pick("leafEventId")];
	const kept = Object.entries(record.unnamedMembers).filter(
		([pointer]) => !only.some((name) => pointer.startsWith(`/${NAMES[name]}/`)),
	);
	return create(ConversationInfoSchema, {
		...(record.id === undefined ? {} : { id: record.id }),
		...(title === undefined ? {} : { title }),
		...(executionStatus === undefined ? {} : { executionStatus }),
		...(leafEventId === undefined ? {} : { leafEventId }),
		tags: pick("tags"),
		unnamedMembers: { ...Object.fromEntries(kept), ...change.unnamedMembers },
	});
}

test("deltas replace members and all unnamed members below them, whether applied one by one or merged", () => {
	const change = fc.tuple(members, fc.subarray(names.slice()));
	fc.assert(
		fc.property(members, fc.array(change, { minLength: 1, maxLength: 4 }), (base, changes) => {
			const record = recordOf(base, names);
			record.id = "a";
			record.unnamedMembers["/titles"] = text("kept");
			const deltas = changes.map(([generated, only]) =>
				encodeDelta(
					only.map((name) => NUMBERS[name]),
					toBinary(ConversationInfoSchema, recordOf(generated, only)),
				),
			);
			const whole = toBinary(ConversationInfoSchema, record);
			const expected = changes.reduce(
				(before, [generated, only]) => changed(before, only, recordOf(generated, only)),
				record,
			);
			expect(decode(deltas.reduce(mergeRecord, whole))).toEqual(expected);
			expect(decode(mergeRecord(whole, deltas.reduce(mergeDeltas)))).toEqual(expected);
		}),
	);
});

test("picked members come with the unnamed members below them, and without all others", () => {
	fc.assert(
		fc.property(members, fc.subarray(names.slice()), (generated, only) => {
			const record = recordOf(generated, names);
			record.id = "a";
			record.unnamedMembers["/titles"] = text("outside");
			const whole = toBinary(ConversationInfoSchema, record);
			const picked = pickMembers(whole, new Set(only.map((name) => NUMBERS[name])));
			expect(decode(picked)).toEqual(recordOf(generated, only));
		}),
	);
});

test("a leaf replaces the leaf of a record or a delta, and setting it repeatedly does not grow the delta", () => {
	const whole = encode({ id: "a", title: "old", leafEventId: "old" });
	expect(decode(withLeaf(whole, "new"))).toEqual(decode(encode({ id: "a", title: "old", leafEventId: "new" })));
	let delta = encodeDelta([NUMBERS.title], encode({ title: "new" }));
	const once = deltaWithLeaf(delta, "leaf-0").byteLength;
	for (let n = 0; n < 5; n++) delta = deltaWithLeaf(delta, `leaf-${n}`);
	expect(delta.byteLength).toBe(once);
	expect(decode(mergeRecord(whole, delta))).toEqual(decode(encode({ id: "a", title: "new", leafEventId: "leaf-4" })));
});

test("fields of another release are kept, and bytes that are not a delta or a record are refused", () => {
	// Field 1000, length-delimited, with one byte.
	const later = Uint8Array.of(0xc2, 0x3e, 1, 7);
	const delta = encodeDelta([NUMBERS.title], new Uint8Array());
	expect(mergeRecord(later, delta)).toEqual(later);
	const whole = encode({ id: "a" });
	for (const broken of [new Uint8Array(), whole, delta.subarray(0, 1), later])
		expect(() => mergeRecord(whole, broken)).toThrow(Error);
	expect(() => mergeRecord(Uint8Array.of(0x0a, 100), delta)).toThrow(Error);
});

test("results have buffers of their own", () => {
	const whole = encode({ id: "a", title: "old" });
	const delta = encodeDelta([NUMBERS.title], encode({ title: "new" }));
	for (const result of [mergeRecord(whole, delta), mergeDeltas(delta, delta), withLeaf(whole, "leaf"), delta])
		expect(result.buffer.byteLength).toBe(result.byteLength);
});
