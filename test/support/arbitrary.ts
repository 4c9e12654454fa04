import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { JsonType } from "../../gen/conversations/options/v1/options_pb.js";
import { isJsonObject } from "../../src/record/json/json-value.ts";
import type { FieldPlan, MessagePlan, PlainPlan, UnionPlan, ValuePlan } from "../../src/record/plan.ts";

/**
 * Names that break careless code: prototype members, JSON Pointer syntax, the empty name, other scripts, secret names.
 */
const NAMES = [
	"__proto__",
	"constructor",
	"toString",
	"a/b~c",
	"~1",
	"",
	"0",
	"x y",
	"名前",
	"🗝",
	"api_token",
] as const;
/** Messages below this depth are as small as their rules allow, so that generation terminates. */
const MAX_DEPTH = 7;

const text = fc.oneof(
	fc.string({ unit: "binary", maxLength: 12 }),
	fc.constantFrom("", "\u0000", "é\u0301", "😀", "**********"),
);
const name = fc.oneof(fc.constantFrom(...NAMES), text);
const number = fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.integer(), fc.constantFrom(1e-9, 1e22));

/** Any JSON value of a few levels. */
export const freeForm: fc.Arbitrary<JsonValue> = fc.letrec<{ json: JsonValue; object: JsonObject }>((tie) => ({
	json: fc.oneof(
		{ depthSize: "small", maxDepth: 3 },
		fc.constant(null),
		text,
		number,
		fc.boolean(),
		fc.array(tie("json"), { maxLength: 3 }),
		tie("object"),
	),
	object: fc.array(fc.tuple(name, tie("json")), { maxLength: 3 }).map((members) => Object.fromEntries(members)),
})).json;

const freeObject = fc.array(fc.tuple(name, freeForm), { maxLength: 3 }).map((members) => Object.fromEntries(members));

/** Generates records in every form that their plan accepts, with unnamed members at random places. */
export function jsonOf(plan: MessagePlan): fc.Arbitrary<JsonValue> {
	return message(plan, 0);
}

function message(plan: MessagePlan, depth: number): fc.Arbitrary<JsonValue> {
	return plan.form === "union" ? union(plan, depth) : plain(plan, depth);
}

function plain(plan: PlainPlan, depth: number): fc.Arbitrary<JsonValue> {
	const [first] = plan.fields;
	if (plan.form === "bare" && first !== undefined) return field(first, depth);
	if (plan.form === "tuple") return fc.tuple(...plan.fields.map((item) => value(item.value, depth + 1)));
	const members = plan.fields.map((member) => {
		const given = fc.tuple(fc.constantFrom(member.name, ...member.aliases), nullable(member, depth));
		if (member.required) return given.map((entry) => [entry]);
		if (depth >= MAX_DEPTH) return fc.constant([]);
		return fc.oneof({ weight: 3, arbitrary: fc.constant([]) }, { weight: 2, arbitrary: given.map((entry) => [entry]) });
	});
	const taken = (candidate: string) => plan.members.has(candidate) || candidate === plan.discriminator?.name;
	const entry = fc.tuple(
		name.filter((candidate) => !taken(candidate)),
		freeForm,
	);
	const unnamed = plan.closed
		? fc.constant([])
		: fc.oneof({ weight: 3, arbitrary: fc.constant([]) }, fc.array(entry, { minLength: 1, maxLength: 2 }));
	return fc
		.tuple(fc.tuple(...members), unnamed)
		.map(([named, others]) => withoutExcluded(plan, Object.fromEntries([...named.flat(), ...others])));
}

function withoutExcluded(plan: PlainPlan, json: JsonObject): JsonObject {
	for (const { field: given, excludes } of plan.exclusions)
		if (Object.hasOwn(json, given.name) && json[given.name] !== null) delete json[excludes.name];
	return json;
}

function nullable(member: FieldPlan, depth: number): fc.Arbitrary<JsonValue> {
	const given = field(member, depth);
	return member.nullable
		? fc.oneof({ weight: 1, arbitrary: fc.constant(null) }, { weight: 3, arbitrary: given })
		: given;
}

function field(member: FieldPlan, depth: number): fc.Arbitrary<JsonValue> {
	const item = fc.constant(undefined).chain(() => value(member.value, depth + 1));
	switch (member.shape) {
		case "single":
			return item;
		case "list":
			return fc.array(item, {
				minLength: member.minItems,
				maxLength: Math.max(member.minItems, depth >= MAX_DEPTH ? 0 : 2),
			});
		case "map": {
			const key = member.keyPattern === undefined ? name : fc.stringMatching(member.keyPattern);
			const limited = member.maxValueLength > 0 ? item.map((json) => shortened(json, member.maxValueLength)) : item;
			return fc.array(fc.tuple(key, limited), { maxLength: 2 }).map((entries) => Object.fromEntries(entries));
		}
	}
}

function shortened(json: JsonValue, length: number): JsonValue {
	return typeof json === "string" ? [...json].slice(0, length).join("") : json;
}

function value(plan: ValuePlan, depth: number): fc.Arbitrary<JsonValue> {
	switch (plan.type) {
		case "string":
			return plan.uuid ? uuid : text;
		case "integer": {
			const least = Math.max(plan.gte ?? Number.MIN_SAFE_INTEGER, plan.gt === undefined ? -Infinity : plan.gt + 1);
			return fc.oneof(fc.maxSafeInteger(), fc.constantFrom(0, 1, 2 ** 53 - 1)).map((given) => Math.max(given, least));
		}
		case "number":
			return number.map((given) => (plan.gte === undefined && plan.gt === undefined ? given : Math.abs(given)));
		case "boolean":
			return fc.boolean();
		case "enum":
			return fc.constantFrom(...plan.enum.byName.keys());
		case "timestamp":
			return dateTime;
		case "struct":
			return freeObject;
		case "value":
			return plan.jsonTypes.length === 0 ? freeForm : fc.oneof(...plan.jsonTypes.map((type) => BY_JSON_TYPE[type]));
		case "message":
			return message(plan.message, depth);
	}
}

/** JSON values of each type. */
const BY_JSON_TYPE: Readonly<Record<JsonType, fc.Arbitrary<JsonValue>>> = {
	[JsonType.UNSPECIFIED]: freeForm,
	[JsonType.OBJECT]: freeObject,
	[JsonType.STRING]: text,
	[JsonType.NUMBER]: number,
};

function union(plan: UnionPlan, depth: number): fc.Arbitrary<JsonValue> {
	const tagged = [...plan.tagged]
		.filter(([, arm]) => depth < MAX_DEPTH || !mustContainUnion(arm.value))
		.map(([tag, arm]) =>
			fc
				.constant(undefined)
				.chain(() => value(arm.value, depth))
				.map((json) => (isJsonObject(json) ? { ...json, [plan.discriminator]: tag } : json)),
		);
	const bare = Object.values(plan.bare).map((arm) => value(arm.value, depth + 1));
	const anything = fc.oneof(freeForm, freeObject);
	const unknown = plan.unknown === undefined ? [] : [anything.filter((json) => isAcceptedAsUnknown(plan, json))];
	return fc.oneof(...tagged, ...bare, ...unknown);
}

/** Returns whether a message of an arm must contain another union. */
function mustContainUnion(plan: ValuePlan): boolean {
	if (plan.type !== "message" || plan.message.form === "union") return plan.type === "message";
	return plan.message.fields.some((member) => member.required && mustContainUnion(member.value));
}

/** Returns whether only the arm for unknown values accepts a value. */
function isAcceptedAsUnknown(plan: UnionPlan, json: JsonValue): boolean {
	const { unknownTypes } = plan;
	if (isJsonObject(json))
		return !plan.tagged.has(String(json[plan.discriminator])) && acceptsType(unknownTypes, JsonType.OBJECT);
	if (Array.isArray(json)) return plan.bare.array === undefined && unknownTypes.length === 0;
	if (Object.keys(plan.bare).includes(typeof json)) return false;
	return typeof json === "string" ? acceptsType(unknownTypes, JsonType.STRING) : unknownTypes.length === 0;
}

function acceptsType(types: readonly JsonType[], type: JsonType): boolean {
	return types.length === 0 || types.includes(type);
}

const uuid = fc
	.tuple(fc.uuid(), fc.constantFrom("dashed", "digits", "braced", "urn"), fc.boolean())
	.map(([dashed, form, upper]) => {
		const cased = upper ? dashed.toUpperCase() : dashed;
		if (form === "digits") return cased.replaceAll("-", "");
		if (form === "braced") return `{${cased}}`;
		return form === "urn" ? `urn:uuid:${cased}` : cased;
	});

const dateTime = fc
	.tuple(
		fc.date({ min: new Date("0002-01-01"), max: new Date("9998-12-31"), noInvalidDate: true }),
		fc.constantFrom("", ".1", ".000001", ",123456", ".1234567", ".999999"),
		fc.constantFrom("", "Z", "z", "+05:30", "-0800"),
	)
	.map(([date, fraction, zone]) => `${date.toISOString().slice(0, 19)}${fraction}${zone}`);
