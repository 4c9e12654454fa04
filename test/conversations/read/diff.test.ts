import { clone, type DescField, type DescMessage, type JsonObject, toBinary, toJson } from "@bufbuild/protobuf";
import { type FieldMask, FieldMaskSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { diffMessages } from "../../../src/conversations/read/updates.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { records } from "../../record/secrets/random-record.ts";
import { record } from "../../support/fixtures.ts";

const format = new RecordFormat();
const diff = (before: object, after: object) => diffMessages(ConversationInfoSchema, before, after);

function hex(message: ConversationInfo): string {
	return Buffer.from(toBinary(ConversationInfoSchema, message)).toString("hex");
}

function isFields(value: unknown): value is Record<string, unknown> {
	return typeof value === "object" && value !== null;
}

function fieldNamed(desc: DescMessage, name: string): DescField {
	const field = desc.fields.find((candidate) => candidate.name === name);
	if (field === undefined) throw new Error(`${desc.typeName} has no field ${name}`);
	return field;
}

function read(message: Record<string, unknown>, { oneof, localName }: DescField): unknown {
	if (oneof === undefined) return message[localName];
	const selected = message[oneof.localName];
	return isFields(selected) && selected.case === localName ? selected.value : undefined;
}

/** Copies the fields at `paths` from one message into another. */
function apply(from: unknown, into: unknown, desc: DescMessage, paths: readonly string[]): void {
	for (const path of paths) {
		const [name = "", ...rest] = path.split(".");
		const field = fieldNamed(desc, name);
		if (!isFields(from) || !isFields(into)) throw new Error(`${path} leads through a message that is not there`);
		if (rest.length > 0) {
			if (field.fieldKind !== "message") throw new Error(`${path} leads through a field that is no message`);
			apply(read(from, field), read(into, field), field.message, [rest.join(".")]);
			continue;
		}
		const value = read(from, field);
		if (field.oneof === undefined) into[field.localName] = value;
		else if (value !== undefined) into[field.oneof.localName] = { case: field.localName, value };
		else if (read(into, field) !== undefined) into[field.oneof.localName] = { case: undefined };
	}
}

function applied(from: ConversationInfo, into: ConversationInfo, paths: readonly string[]): ConversationInfo {
	const copy = clone(ConversationInfoSchema, into);
	apply(from, copy, ConversationInfoSchema, paths);
	return copy;
}

test("a record does not differ from its copy", () => {
	fc.assert(
		fc.property(records, (a) => {
			expect(diff(a, clone(ConversationInfoSchema, a))).toEqual([]);
		}),
	);
});

test("copying all differing fields makes one record equal to the other, and copying fewer does not", () => {
	const subset = fc.infiniteStream(fc.boolean());
	fc.assert(
		fc.property(records, records, subset, (a, other, chosen) => {
			const all = diff(a, other);
			const some = all.filter(() => chosen.next().value === true);
			const b = applied(other, a, some);
			const paths = diff(a, b);
			expect(paths.length > 0).toBe(hex(a) !== hex(b));
			expect(hex(applied(b, a, paths))).toBe(hex(b));
			expect(all).toEqual(expect.arrayContaining(paths));
			for (const path of paths)
				expect(
					hex(
						applied(
							b,
							a,
							paths.filter((kept) => kept !== path),
						),
					),
				).not.toBe(hex(b));
		}),
	);
});

test("no path of a diff is below another or occurs twice", () => {
	fc.assert(
		fc.property(records, records, (a, b) => {
			const paths = diff(a, b);
			expect(paths.filter((path) => paths.some((other) => path.startsWith(`${other}.`)))).toEqual([]);
			expect(new Set(paths).size).toBe(paths.length);
		}),
	);
});

test("records that differ in the order of map entries and free-form members have no diff", () => {
	const a = format.fromJson(
		record({ id: ID, tags: { x: "1", y: "2" }, agent_state: { x: { p: 1, q: [2] }, y: null } }),
	);
	const b = format.fromJson(
		record({ id: ID, tags: { y: "2", x: "1" }, agent_state: { y: null, x: { q: [2], p: 1 } } }),
	);
	expect(diff(a, b)).toEqual([]);
});

const ID = "0190d6a0-0000-7000-8000-000000000001";
const acp = { kind: "ACPAgent", acp_command: ["acp"] };
const native = { kind: "Agent", llm: { model: "m" } };

// All differences are found, as the properties above say. These rows say how deep their paths go.
test.each<[string, JsonObject, JsonObject, string[]]>([
	["an empty scalar that only one record has", {}, { title: "" }, ["title"]],
	[
		"a changed field two messages deep",
		{ agent: { ...native, llm: { model: "a" } } },
		{ agent: { ...native, llm: { model: "b" } } },
		["agent.agent.llm.model"],
	],
	["both arms of a union", { agent: acp }, { agent: native }, ["agent.acp_agent", "agent.agent"]],
	["a message that only one record has", { hook_config: null }, { hook_config: {} }, ["hook_config"]],
	[
		"a list with a changed message",
		{ available_models: [{ model_id: "m", name: "a" }] },
		{ available_models: [{ model_id: "m", name: "b" }] },
		["available_models"],
	],
	[
		"a map with a changed message",
		{ stats: { usage_to_metrics: { agent: { accumulated_cost: 1 } } } },
		{ stats: { usage_to_metrics: { agent: { accumulated_cost: 2 } } } },
		["stats.usage_to_metrics"],
	],
	[
		"an instant that differs by a microsecond",
		{ updated_at: "2026-01-01T00:00:00Z" },
		{ updated_at: "2026-01-01T00:00:00.000001Z" },
		["updated_at"],
	],
	["changed free-form JSON", { agent_state: { a: [1] } }, { agent_state: { a: [2] } }, ["agent_state"]],
	["changed unnamed members", { vendor: 1 }, { vendor: 2 }, ["unnamed_members"]],
	["several changed fields", { title: "a", tags: {} }, { title: "b", tags: { a: "1" } }, ["title", "tags"]],
])("a diff reports %s in both directions", (_, before, after, paths) => {
	const [a, b] = [before, after].map((members) => format.fromJson(record({ id: ID, ...members })));
	if (a === undefined || b === undefined) throw new Error("two records were made");
	expect(diff(a, b)).toEqual(paths);
	expect(diff(b, a)).toEqual(paths);
});

test("every field name of the record can be written in the JSON form of a field mask", () => {
	const names = new Set<string>();
	const seen = new Set<string>();
	const visit = (desc: DescMessage): void => {
		if (seen.has(desc.typeName)) return;
		seen.add(desc.typeName);
		for (const field of desc.fields) {
			names.add(field.name);
			if (field.message !== undefined) visit(field.message);
		}
	};
	visit(ConversationInfoSchema);
	const mask: FieldMask = { $typeName: "google.protobuf.FieldMask", paths: [...names] };
	expect(String(toJson(FieldMaskSchema, mask)).split(",")).toHaveLength(names.size);
});
