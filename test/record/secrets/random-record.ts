import { create, type DescField, type DescMessage, type JsonValue, ScalarType } from "@bufbuild/protobuf";
import fc, { type GeneratorValue } from "fast-check";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { toValue } from "../../../src/record/json/json-form.ts";
import { setMember } from "../../../src/record/json/json-value.ts";
import { REDACTED } from "../../../src/userinfo.ts";

/** Maximum nesting depth of messages. At this depth, fields of a message type stay unset. */
const MAX_DEPTH = 7;

const text = fc.oneof(
	fc.string({ unit: "binary", maxLength: 12 }),
	fc.constantFrom("", REDACTED, "enc:v1:AAAAAAAAAAA:AAAA", "sk-1", "__proto__"),
);
const name = fc.oneof(fc.constantFrom("token", "api_key", "Cookie", "a/b~c", "", "__proto__", "constructor"), text);
const pointer = name.map((token) => `/${token.replaceAll("~", "~0").replaceAll("/", "~1")}`);
const { json } = fc.letrec<{ json: JsonValue }>((tie) => ({
	json: fc.oneof(
		{ maxDepth: 3, withCrossShrink: true },
		text,
		fc.constantFrom(null, true, 0, 1.5),
		fc.array(tie("json"), { maxLength: 3 }),
		fc.dictionary(name, tie("json"), { maxKeys: 3 }),
	),
}));
const object = fc.dictionary(name, json, { maxKeys: 3 });
const unnamed = fc.array(fc.tuple(pointer, json), { maxLength: 3 });

// fast-check's generator caches arbitraries by the function that returns them, so each arbitrary has one function.
const aText = () => text;
const aName = () => name;
const aJson = () => json;
const anObject = () => object;
const someUnnamed = () => unnamed;

/**
 * Random records with any content that the descriptors allow, whether or not they meet the rules of a record. Each has
 * an id.
 */
export const records: fc.Arbitrary<ConversationInfo> = fc.gen().map((g) =>
	create(ConversationInfoSchema, {
		...randomInit(g, ConversationInfoSchema, 0),
		id: g(fc.uuid),
		unnamedMembers: Object.fromEntries(g(someUnnamed).map(([place, value]) => [place, toValue(value)])),
	}),
);

type Init = Record<string, unknown>;

function randomInit(g: GeneratorValue, desc: DescMessage, depth: number): Init {
	const init: Init = {};
	for (const field of desc.fields) {
		const nests = field.message !== undefined;
		// The arms of unions are set below. Three in four of the other fields are set.
		if (field.oneof !== undefined || (nests && depth >= MAX_DEPTH) || g(fc.nat, { max: 3 }) === 0) continue;
		if (field.fieldKind === "list")
			init[field.localName] = [randomValue(g, field, depth), randomValue(g, field, depth)];
		else if (field.fieldKind === "map") {
			const entries: Init = {};
			setMember(entries, g(aName), randomValue(g, field, depth));
			init[field.localName] = entries;
		} else init[field.localName] = randomValue(g, field, depth);
	}
	for (const oneof of desc.oneofs) {
		const arms = oneof.fields.filter((field) => field.message === undefined || depth < MAX_DEPTH);
		const arm = arms[g(fc.nat, { max: Math.max(0, arms.length - 1) })];
		if (arm !== undefined) init[oneof.localName] = { case: arm.localName, value: randomValue(g, arm, depth) };
	}
	return init;
}

function randomValue(g: GeneratorValue, field: DescField, depth: number): unknown {
	if (field.message !== undefined) return randomMessage(g, field.message, depth + 1);
	if (field.enum !== undefined) return g(fc.nat, { max: field.enum.values.length - 1 });
	switch (field.scalar) {
		case ScalarType.STRING:
			return g(aText);
		case ScalarType.INT64:
			return g(fc.bigInt, { min: -(2n ** 63n), max: 2n ** 63n - 1n });
		case ScalarType.INT32:
			return g(fc.integer);
		case ScalarType.DOUBLE:
			return g(fc.double, { noNaN: true });
		case ScalarType.BOOL:
			return g(fc.boolean);
		default:
			throw new Error(`${field}: no values of this type`);
	}
}

function randomMessage(g: GeneratorValue, desc: DescMessage, depth: number): unknown {
	switch (desc.typeName) {
		case "google.protobuf.Struct":
			return g(anObject);
		case "google.protobuf.Value":
			return toValue(g(aJson));
		default:
			return create(desc, randomInit(g, desc, depth));
	}
}
