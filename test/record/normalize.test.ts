import { create, fromBinary, type JsonValue, toBinary } from "@bufbuild/protobuf";
import { type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type ConversationInfo, ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { deriveBinaryEncoder } from "../../src/record/binary.ts";
import { deriveEncoder } from "../../src/record/json/encode.ts";
import { setMember, toValue } from "../../src/record/json/free-form.ts";
import { placeUnnamed } from "../../src/record/json/unnamed.ts";
import { deriveNormalizer } from "../../src/record/normalize.ts";
import { deriveBinaryDecoder } from "../../src/record/read-binary.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { jsonOf } from "../support/arbitrary.ts";
import { corpus, corpusBody, record } from "../support/fixtures.ts";
import { messageOf } from "../support/message.ts";
import { summaryOf, violationsOf } from "../support/refusal.ts";

const format = new RecordFormat();
const normalize = deriveNormalizer(format.plan);
const encodeJson = deriveEncoder(format.plan);
const encode = deriveBinaryEncoder(ConversationInfoSchema);
const decode = deriveBinaryDecoder(ConversationInfoSchema);

/** What the way through the JSON form makes of a message; undefined when it refuses it. */
function viaJson(message: ConversationInfo): ConversationInfo | undefined {
	try {
		const json = encodeJson(message);
		const placed = Object.entries(message.unnamedMembers).map(([pointer, value]) =>
			placeUnnamed(json, format.plan, pointer, value),
		);
		return placed.includes(false) ? undefined : format.fromJson(json, false);
	} catch {
		return undefined;
	}
}

/** Holds the normalizer to the way through the JSON form; gives its verdict. The message is changed. */
function judged(message: ConversationInfo): boolean {
	const before = textOf(message);
	const original = structuredClone(message);
	if (!normalize(message)) {
		expect(textOf(message)).toBe(before);
		return false;
	}
	const expected = viaJson(original);
	if (expected === undefined) throw new Error("accepted what the schema refuses");
	expect(textOf(message)).toBe(textOf(expected));
	expect(Buffer.compare(encode(message), encode(expected))).toBe(0);
	return true;
}

/**
 * All that tells messages apart: the properties that are set, and the entries of maps in their order. vitest's own
 * comparison takes a member `__proto__` for the prototype.
 */
function textOf(value: unknown): string {
	if (Array.isArray(value)) return `[${value.map(textOf).join(",")}]`;
	if (isPlace(value)) {
		const set = Object.entries(value).filter(([, member]) => member !== undefined);
		const members = set.map(([name, member]) => `${JSON.stringify(name)}:${textOf(member)}`);
		return `{${("$typeName" in value ? members.sort() : members).join(",\n")}}`;
	}
	if (typeof value === "string") return JSON.stringify(value);
	return typeof value === "bigint" ? `${value}n` : Object.is(value, -0) ? "-0" : String(value);
}

type Place = Record<string, unknown>;

function isPlace(value: unknown): value is Place {
	return typeof value === "object" && value !== null && !ArrayBuffer.isView(value);
}

/** A message, list, map or free-form object inside of a message, and the name of something in it. */
function placeIn(
	message: ConversationInfo,
	choices: readonly number[],
): { readonly place: Place; readonly name: string } {
	let place: Place = message;
	let name = "";
	for (const choice of choices) {
		const inside = place[name];
		if (name !== "" && !isPlace(inside)) break;
		if (isPlace(inside)) place = inside;
		const names = Object.keys(place).filter((candidate) => candidate !== "$typeName");
		name = names[choice % Math.max(names.length, 1)] ?? "news";
	}
	return { place, name };
}

/** A value of `levels` arrays within each other. */
function nested(levels: number): Value {
	let json: JsonValue = [];
	for (let level = 1; level < levels; level++) json = [json];
	return toValue(json);
}

const timestamp = (seconds: bigint, nanos: number) => ({ $typeName: "google.protobuf.Timestamp", seconds, nanos });
const unsetValue = { $typeName: "google.protobuf.Value", kind: { case: undefined } };
const condenser = (value: Value) => ({
	$typeName: "conversations.v1.Condenser",
	kind: { case: "unknown", value },
});
const analyzer = (levels: number): unknown => ({
	$typeName: "conversations.v1.SecurityAnalyzer",
	kind:
		levels === 0
			? { case: "llmSecurityAnalyzer", value: { $typeName: "conversations.v1.LLMSecurityAnalyzer" } }
			: {
					case: "ensembleSecurityAnalyzer",
					value: {
						$typeName: "conversations.v1.EnsembleSecurityAnalyzer",
						analyzers: [analyzer(levels - 1)],
						propagateUnknown: false,
					},
				},
});

const UUID = "0b9de4f5-3b4e-4a6c-9a35-0d8f8e6c1a7b";
const VALUES: readonly unknown[] = [
	...[undefined, true, false],
	...[0, -0, 1, 5, 99, -1, 1.5, Number.NaN, Infinity],
	...[0n, 1n, -1n, 2n ** 53n - 1n, 2n ** 53n, -(2n ** 53n), 2n ** 63n - 1n],
	...["", "x", "Tag", "system_prompt.j2", UUID, UUID.toUpperCase(), UUID.replaceAll("-", ""), "😀".repeat(256)],
	...["x".repeat(257), "NoOpCondenser"],
	...[timestamp(0n, 0), timestamp(1n, 1), timestamp(1n, 1000), timestamp(-62135596801n, 0), timestamp(1n, -1000)],
	...[timestamp(253402300799n, 999_999_000), timestamp(253402300800n, 0), timestamp(1n, 1_000_000_000)],
	...[
		unsetValue,
		toValue(null),
		toValue("30"),
		toValue(Number.NaN),
		toValue([null]),
		nested(25),
		nested(29),
		nested(33),
	],
	...[{ case: undefined }, { case: "unknown", value: unsetValue }, { case: "unknown", value: toValue(null) }],
	...[condenser(toValue(null)), condenser(toValue({ kind: "Other" })), condenser(toValue({ kind: "NoOpCondenser" }))],
	...[condenser(toValue({})), condenser(toValue([])), analyzer(2), analyzer(12), analyzer(20)],
	...[[], {}, [1], ["x"], { a: { b: [null, Infinity] } }, { "10": "x", "9": "y", a: "z" }],
];

const POINTERS = [
	...["/news", "/a~1b~0c", "/", "/__proto__", "/10", "/9", "/title", "/persistence_dir", "news", "", "/a~2"],
	...[
		"/agent/news",
		"/agent/kind",
		"/agent/llm/news",
		"/agent/llm/model/news",
		"/agent/tools/0/news",
		"/workspace/news",
	],
	...["/agent/tools/00/news", "/agent/tools/-1/news", "/stats/usage_to_metrics/default/news", "/hook_config/news"],
	...["/hook_config/stop/0/news", "/hook_config/stop/0/hooks/0/async_", "/hook_config/stop/0/hooks/0/news"],
	...[
		"/agent_state/news",
		"/tags/news",
		"/confirmation_policy/news",
		"/metrics/news",
		"/news/news",
		"/execution_status/x",
	],
	...["/security_analyzer/high_patterns/0/3", "/security_analyzer/analyzers/0/news", "/agent/condenser/news"],
	...["/agent/agent_context/skills/0/mcp_tools/m/news", "/agent/mcp_config/m/news", "/agent/mcp_config/m/env/news"],
];

const UNKNOWN_FIELD = { no: 999, wireType: 0, data: new Uint8Array([1]) };

type Mutation = (message: ConversationInfo) => void;

const replacement: fc.Arbitrary<Mutation> = fc
	.record({
		choices: fc.array(fc.nat(60), { minLength: 1, maxLength: 9 }),
		value: fc.constantFrom(...VALUES),
		alike: fc.boolean(),
		pick: fc.nat(),
	})
	.map(({ choices, value, alike, pick }) => (message) => {
		const { place, name } = placeIn(message, choices);
		const former = place[name];
		const others = alike ? VALUES.filter((other) => sortOf(other) === sortOf(former)) : [value];
		setMember(place, name, structuredClone(others[pick % Math.max(others.length, 1)]));
	});

function sortOf(value: unknown): string {
	return isPlace(value) && typeof value.$typeName === "string" ? value.$typeName : typeof value;
}

const removal: fc.Arbitrary<Mutation> = fc
	.array(fc.nat(60), { minLength: 1, maxLength: 9 })
	.map((choices) => (message) => {
		const { place, name } = placeIn(message, choices);
		if (!Array.isArray(place)) delete place[name];
	});

const unknownField: fc.Arbitrary<Mutation> = fc.array(fc.nat(60), { maxLength: 9 }).map((choices) => (message) => {
	const { place } = placeIn(message, choices);
	if ("$typeName" in place) place.$unknown = [UNKNOWN_FIELD];
});

const unnamed: fc.Arbitrary<Mutation> = fc
	.record({
		pointers: fc.array(fc.constantFrom(...POINTERS), { minLength: 1, maxLength: 3 }),
		value: fc.constantFrom(toValue(null), toValue("kept"), toValue([{ x: [1] }]), toValue(Infinity), nested(30)),
		first: fc.boolean(),
	})
	.map(({ pointers, value, first }) => (message) => {
		const added = Object.fromEntries(pointers.map((pointer) => [pointer, value]));
		message.unnamedMembers = first ? { ...added, ...message.unnamedMembers } : { ...message.unnamedMembers, ...added };
	});

const mutations = fc.array(
	fc.oneof(
		{ weight: 6, arbitrary: replacement },
		{ weight: 3, arbitrary: removal },
		{ weight: 1, arbitrary: unknownField },
		{ weight: 3, arbitrary: unnamed },
	),
	{ minLength: 1, maxLength: 3 },
);

/** A record with something in most of the forms that a record can have. */
const rich = record({
	tags: { a: "x", "1": "y" },
	title: "t",
	hook_config: { stop: [{ hooks: [{ command: "true", timeout: 5, more: 1 }] }] },
	security_analyzer: {
		kind: "PatternSecurityAnalyzer",
		high_patterns: [["a", "b", "c"]],
		medium_patterns: [],
	},
	metrics: { accumulated_cost: 1.5, accumulated_token_usage: {} },
	agent_state: { deep: { inside: [1, null] } },
	created_at: "2026-01-02T03:04:05.678901Z",
	confirmation_policy: { kind: "ConfirmRisky", threshold: "LOW" },
	agent: {
		kind: "Agent",
		llm: { model: "m", capability_overrides: { vision: true, audio: "some" }, extra_headers: { a: "b" } },
		tools: [{ name: "t", params: { x: 1 }, own: [1] }],
		mcp_config: { m: { timeout: "30", args: ["a"], auth: { strategy: "new", token: 1 }, own: true } },
		include_default_tools: [],
		condenser: {
			kind: "PipelineCondenser",
			condensers: [{ kind: "NoOpCondenser" }, { kind: "Own", x: [null] }, "own"],
		},
		critic: { kind: "Own", inside: {} },
		system_prompt: "p",
		agent_context: {
			skills: [
				{ name: "s", content: "c", trigger: ["w"], mcp_tools: { m: { url: "u" } }, allowed_tools: "a b" },
				{ name: "s", content: "c", trigger: { type: "keyword", keywords: ["w"] }, allowed_tools: ["a"] },
			],
			secrets: { a: "plain", b: { kind: "StaticSecret", value: "v" } },
			current_datetime: 5,
		},
	},
});

/** A message as a request of it is read: by the derived decoder, or by the one that it falls back to. */
const readers: readonly [string, (bytes: Uint8Array) => ConversationInfo][] = [
	["the derived decoder", decode],
	["fromBinary", (bytes) => fromBinary(ConversationInfoSchema, bytes)],
];

/** What arrives of a changed message; undefined when the changes left none that can be written and read. */
function arrived(
	read: (bytes: Uint8Array) => ConversationInfo,
	message: ConversationInfo,
): ConversationInfo | undefined {
	try {
		return read(toBinary(ConversationInfoSchema, message));
	} catch {
		return undefined;
	}
}

describe.each(readers)("messages read by %s", (_, read) => {
	test.each(corpus())("$name is normal, and so is what lacks optional fields", ({ json }) => {
		const bytes = toBinary(ConversationInfoSchema, format.fromJson(json));
		expect(judged(read(bytes))).toBe(true);
		// As the body says it, without the defaults that the service fills in.
		const bare = toBinary(ConversationInfoSchema, messageOf(format.plan, json));
		expect(judged(read(bare))).toBe(true);
		for (const name of Object.keys(json)) {
			const { [name]: _removed, ...others } = json;
			const lacking = read(toBinary(ConversationInfoSchema, messageOf(format.plan, others)));
			if (viaJson(lacking) !== undefined) expect(judged(lacking)).toBe(true);
		}
	});

	test("generated records", () => {
		let normal = 0;
		fc.assert(
			fc.property(jsonOf(format.plan), (json) => {
				if (judged(read(toBinary(ConversationInfoSchema, format.fromJson(json))))) normal++;
			}),
			{ numRuns: 300 },
		);
		expect(normal).toBeGreaterThan(100);
	});

	test("whatever is changed in a message, it is normal only if the way through its JSON form yields the same", () => {
		const counts = { normal: 0, other: 0 };
		const real = corpus().map(({ json }) => encode(format.fromJson(json)));
		const body = fc.oneof(fc.constantFrom(...real), fc.constant(encode(format.fromJson(rich))));
		fc.assert(
			fc.property(body, mutations, (bytes, changes) => {
				const message = decode(bytes);
				for (const change of changes) change(message);
				const changed = arrived(read, message);
				if (changed !== undefined) counts[judged(changed) ? "normal" : "other"]++;
			}),
			{ numRuns: 5_000 },
		);
		expect(counts.normal).toBeGreaterThan(500);
		expect(counts.other).toBeGreaterThan(500);
	});
});

/** The native agent of a message that was made of the rich record. */
function agentOf({ agent }: ConversationInfo) {
	if (agent?.kind.case !== "agent") throw new TypeError("the agent is no native one");
	return agent.kind.value;
}

describe("the rich record", () => {
	test("is normal", () => {
		expect(judged(format.fromJson(rich))).toBe(true);
	});

	const list = toValue(["x"]);
	const struct = toValue({ x: 1 });
	const otherwise: readonly [string, Mutation][] = [
		["a value that is null", (message) => setTimeoutOf(message, toValue(null))],
		["a value of an unset kind", (message) => setTimeoutOf(message, create(ValueSchema))],
		["an unknown field of a value", (message) => setTimeoutOf(message, { ...list, $unknown: [UNKNOWN_FIELD] })],
		["an unknown field of a list", (message) => setTimeoutOf(message, withUnknown(list))],
		["an unknown field of a struct", (message) => setTimeoutOf(message, withUnknown(struct))],
		["an unknown condenser that is null", (message) => setCondenser(message, toValue(null))],
		["an unknown condenser of a known kind", (message) => setCondenser(message, toValue({ kind: "NoOpCondenser" }))],
		[
			"an unknown field of a date-time",
			(message) => Object.assign(message.createdAt ?? {}, { $unknown: [UNKNOWN_FIELD] }),
		],
	];
	test.each(otherwise)("with %s is left to the way through its JSON form", (_, change) => {
		const message = format.fromJson(rich);
		change(message);
		expect(textOf(viaJson(structuredClone(message)))).not.toBe(textOf(message));
		expect(judged(message)).toBe(false);
	});
});

function setTimeoutOf(message: ConversationInfo, timeout: Value): void {
	Object.assign(agentOf(message).mcpConfig.m ?? {}, { timeout });
}

function setCondenser(message: ConversationInfo, value: Value): void {
	agentOf(message).condenser = { $typeName: "conversations.v1.Condenser", kind: { case: "unknown", value } };
}

function withUnknown(value: Value): Value {
	const { kind } = value;
	if (kind.case === "listValue" || kind.case === "structValue") kind.value.$unknown = [UNKNOWN_FIELD];
	return value;
}

describe("members that no field names", () => {
	test("are put in the order of their places", () => {
		const json = corpusBody("agent-context-big--start").json;
		const message = format.fromJson(json);
		const ordered = Object.keys(message.unnamedMembers);
		expect(ordered.length).toBeGreaterThan(1);
		message.unnamedMembers = Object.fromEntries(Object.entries(message.unnamedMembers).reverse());
		expect(judged(message)).toBe(true);
		expect(new Set(Object.keys(message.unnamedMembers))).toEqual(new Set(ordered));
	});

	test.each(POINTERS.filter((pointer) => /news$/.test(pointer)))("%s is taken where the schema takes it", (pointer) => {
		const message = format.fromJson(rich);
		message.unnamedMembers[pointer] = toValue("kept");
		const taken = viaJson(structuredClone(message)) !== undefined;
		expect(judged(message)).toBe(taken);
	});
});

test("a member under the alias of an unset field is left to the schema, which takes it for the field", () => {
	const aliased = new RecordFormat(new Map([["usage_id", "model"]]));
	const message = format.fromJson(record({ agent: { kind: "Agent", llm: { usage_id: "u" } } }));
	expect(deriveNormalizer(aliased.plan)(message)).toBe(false);
	expect(aliased.toJson(aliased.fromMessage(message)).agent).toMatchObject({ llm: { model: "u", usage_id: "u" } });
});

test("an accepted message may be changed and given back; a refused one stays as it was", () => {
	const message = format.fromJson(record());
	delete message.maxIterations;
	expect(format.fromMessage(message)).toBe(message);
	expect(message.maxIterations).toBe(500n);
	const bad = format.fromJson(record());
	delete bad.maxIterations;
	delete bad.id;
	expect(summaryOf(violationsOf(() => format.fromMessage(bad)))).toEqual(["id missing"]);
	expect(bad.maxIterations).toBeUndefined();
});
