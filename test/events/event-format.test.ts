import { createSecretKey } from "node:crypto";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { IngestConversationEventsRequestSchema } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { ServiceError } from "../../src/errors.ts";
import { EventFormat, MAX_EVENT_ID_LENGTH, toMessage } from "../../src/events/event-format.ts";
import { readExactJson, stringifyExactJson } from "../../src/record/json/exact-json.ts";
import type { ExactJson } from "../../src/record/json/json-value.ts";
import { parseDateTime, toMicroseconds } from "../../src/record/json/scalars.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { MAX_SECRETS } from "../../src/record/secrets/record-vault.ts";
import { freeForm } from "../support/arbitrary.ts";
import { batchTexts, eventsIn, eventsRequest } from "../support/event-batches.ts";
import { violationsOf } from "../support/refusal.ts";

const ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
const format = new EventFormat(new RecordFormat(), [createSecretKey(Buffer.alloc(32, 1))], "UTC");
const NOW = "2026-11-22T00:00:00Z";

const micros = (text: string) => {
	const time = parseDateTime(text);
	if (time === undefined) throw new TypeError(`${text} is no date-time`);
	return toMicroseconds(time);
};

beforeEach(() => {
	vi.useFakeTimers({ now: Date.parse(NOW), toFake: ["Date"] });
});
afterEach(() => {
	vi.useRealTimers();
});

/** Returns an event with the members of the envelope, overridden by `members`. */
const event = (members: { [name: string]: ExactJson } = {}) => ({
	id: "e1",
	timestamp: "2026-11-21T08:57:29.401699",
	source: "agent",
	kind: "ObservationEvent",
	...members,
});

const parse = (events: ExactJson) => format.parse(ID, Buffer.from(stringifyExactJson(events))).batch;
const plain = (batch: ReturnType<typeof parse>) => batch.events.map((stored) => format.open(ID, stored, "plaintext"));

describe("a captured batch is read back unchanged over both transports", () => {
	test.each(batchTexts())("%s", (_, text) => {
		const events = eventsIn(text);
		const texts = events.map(stringifyExactJson);
		expect(plain(format.parse(ID, Buffer.from(text)).batch)).toEqual(texts);

		// In an event from a message, the members with fields of their own come first.
		const reordered = events.map((json) => {
			const { id, timestamp, source, kind, ...others } = Object(json);
			const parent = typeof others.parent_id === "string" ? { parent_id: others.parent_id } : {};
			return stringifyExactJson({ id, timestamp, source, kind, ...parent, ...others });
		});
		expect(plain(format.fromRequest(eventsRequest(ID, events)).batch)).toEqual(reordered);
	});
});

test("any JSON in events is read back, and both transports store it alike", () => {
	const integer = fc.bigInt({ min: -(2n ** 80n), max: 2n ** 80n }).map((value) => readExactJson(String(value)));
	const member = fc.oneof({ weight: 3, arbitrary: freeForm }, { weight: 1, arbitrary: integer });
	const name = fc.oneof(fc.constantFrom("key", "value", "api_key", "__proto__", "1", "a/b~c"), fc.string());
	const members = fc
		.array(fc.tuple(name, member), { maxLength: 4 })
		.map((entries): { [name: string]: ExactJson } => Object.fromEntries(entries));
	const state = fc.record({
		kind: fc.constant("ConversationStateUpdateEvent"),
		key: fc.constantFrom("full_state", "agent_state", "tags", "agent", "vendor", "__proto__"),
		value: fc.oneof(member, fc.record({ agent_state: member, tags: member, vendor: member }, { requiredKeys: [] })),
	});
	const envelope = fc.record({
		id: fc.string({ minLength: 1, maxLength: 20 }).filter((id) => id.isWellFormed()),
		timestamp: fc.constant("2026-11-21T08:57:29"),
		source: fc.string(),
		kind: fc.string(),
	});
	const events = fc.uniqueArray(
		fc
			.tuple(members, envelope, fc.option(state, { nil: {} }))
			.map(([others, first, update]): { [name: string]: ExactJson } => ({ ...first, ...others, ...first, ...update })),
		{ minLength: 1, maxLength: 3, selector: ({ id }) => id },
	);
	fc.assert(
		fc.property(events, (given) => {
			for (const one of given) if (typeof one.parent_id !== "string") delete one.parent_id;
			// A double beyond 2^53 is an integer, and is read back with all of its digits.
			const batch = eventsIn(stringifyExactJson(given));
			const stored = parse(batch);
			expect(plain(stored)).toEqual(batch.map(stringifyExactJson));
			const { batch: again } = format.fromRequest(eventsRequest(ID, batch));
			const messages = plain(stored).map(toMessage);
			expect(plain(again).map(toMessage)).toEqual(messages);
			expect(stored.events.map((one) => readExactJson(format.open(ID, one, "redacted")))).toEqual(
				again.events.map((one) => readExactJson(format.open(ID, one, "redacted"))),
			);
		}),
		{ numRuns: 300 },
	);
});

test("a parsed batch has for each event all that the store keeps, and one buffer for the texts", () => {
	const content = [{ type: "text", text: `see https://u:p@h/ ${"😀".repeat(300)}` }];
	const { batch } = format.parse(
		"{7C9E6679-7425-40DE-944B-E07FC1F90AE7}",
		Buffer.from(
			stringifyExactJson([
				event({ id: "m", kind: "MessageEvent", source: "user", llm_message: { content } }),
				event({ id: "s", kind: "ConversationStateUpdateEvent", key: "tags", value: {} }),
				event({ id: "m", kind: "PauseEvent" }),
				event({ id: "f", timestamp: "2026-11-22T00:06:00" }),
			]),
		),
	);
	const usual = { secrets: [], redactionVersion: expect.any(Number), text: expect.any(Uint8Array), message: undefined };
	const happenedAt = micros("2026-11-21T08:57:29.401699Z");
	expect(batch).toEqual({
		conversationId: ID,
		receivedAt: micros(NOW),
		effect: undefined,
		events: [
			{
				...usual,
				eventId: "m",
				happenedAt,
				kind: "MessageEvent",
				source: "user",
				isLeaf: true,
				message: `see https://**********@h/ ${"😀".repeat(174)}`,
				secrets: ["/llm_message/content/0/text"],
			},
			{ ...usual, eventId: "s", happenedAt, kind: "ConversationStateUpdateEvent", source: "agent", isLeaf: false },
			{ ...usual, eventId: "f", happenedAt: micros(NOW), kind: "ObservationEvent", source: "agent", isLeaf: true },
		],
	});
	// The texts share one buffer without other content, because it is transferred to another thread.
	const [shared, ...others] = new Set(batch.events.map(({ text }) => text.buffer));
	const sizes = batch.events.map(({ text }) => text.byteLength);
	expect([shared?.byteLength, others]).toEqual([sizes.reduce((sum, size) => sum + size), []]);
	expect(parse([])).toEqual({ conversationId: ID, receivedAt: micros(NOW), effect: undefined, events: [] });
});

test.each([
	["in Berlin", "2026-11-21T07:57:29.401699Z"],
	["in New York", "2026-11-21T13:57:29.401699Z"],
])("timestamps without an offset are in the time zone of their sender %s", (sender, utc) => {
	const zones = new Map([["in New York", "America/New_York"]]);
	const format = new EventFormat(new RecordFormat(), [], "Europe/Berlin", zones);
	const [stored] = format.parse(ID, Buffer.from(JSON.stringify([event()])), sender).batch.events;
	expect(stored?.happenedAt).toBe(micros(utc));
});

test("a time more than five minutes after the arrival is replaced by the arrival", () => {
	const timestamps = [
		"2026-11-22T00:05:00",
		"2026-11-22T00:05:00.000001",
		"9999-12-31T23:59:59",
		"2026-11-22T09:00:00+09:00",
	];
	const { events } = parse(timestamps.map((timestamp, n) => event({ id: `e${n}`, timestamp })));
	expect(events.map(({ happenedAt }) => happenedAt)).toEqual([
		micros("2026-11-22T00:05:00Z"),
		...[1, 2, 3].map(() => micros("2026-11-22T00:00:00Z")),
	]);
});

test("the delay of a batch is that of its newest event by the sender's own time", () => {
	const delayOf = (...timestamps: string[]) => {
		const events = timestamps.map((timestamp, n) => event({ id: `e${n}`, timestamp }));
		return format.parse(ID, Buffer.from(JSON.stringify(events))).delay;
	};
	expect(delayOf("2026-11-21T18:00:00", "2026-11-21T19:00:00", "2026-11-21T18:30:00")).toBe(5n * 3_600_000_000n);
	expect(delayOf("2026-11-22T02:00:00")).toBe(-2n * 3_600_000_000n);
	expect(delayOf()).toBeUndefined();
});

describe("the message of an event", () => {
	test("has the envelope in its fields and the other members as JSON", () => {
		const text = stringifyExactJson(event({ parent_id: "p", b: 2n ** 70n, a: { parent_id: null } }));
		expect(toMessage(text)).toMatchObject({
			id: "e1",
			timestamp: "2026-11-21T08:57:29.401699",
			source: "agent",
			kind: "ObservationEvent",
			parentId: "p",
			membersJson: '{"b":1180591620717411303424,"a":{"parent_id":null}}',
		});
	});

	test("has a parent_id that is null among the JSON members", () => {
		const { parentId, membersJson } = toMessage(stringifyExactJson(event({ a: 1, parent_id: null })));
		expect([parentId, membersJson]).toEqual([undefined, '{"a":1,"parent_id":null}']);
	});
});

const MISSING = { type: "missing", message: "Field required" };
const TEXT = { type: "string_type", message: "Input should be a valid string" };
const DATE = {
	type: "datetime_from_date_parsing",
	message: "Input should be a valid datetime, ISO 8601 with T",
	context: { error: "not an ISO 8601 date-time" },
};
const UNICODE = {
	type: "string_unicode",
	message: "Input should be a valid string, unable to parse raw data as a unicode string",
};
const SHORT = {
	type: "string_too_short",
	message: "String should have at least 1 character",
	context: { min_length: 1 },
};
const LONG = {
	type: "string_too_long",
	message: "String should have at most 256 characters",
	context: { max_length: 256 },
};
const LIST = { type: "list_type", message: "Input should be a valid list" };
const OBJECT = {
	type: "model_attributes_type",
	message: "Input should be a valid dictionary or object to extract fields from",
};
const valueError = (problem: string) => ({
	type: "value_error",
	message: `Value error, ${problem}`,
	context: { error: {} },
});
const nested = (depth: number): ExactJson => (depth === 0 ? 1 : [nested(depth - 1)]);
const TOO_DEEP = valueError("free-form JSON nested more than 32 levels deep");

describe("a batch is refused as a whole", () => {
	const { id: _, ...withoutId } = event();
	const long = "x".repeat(MAX_EVENT_ID_LENGTH + 1);
	const numbers = { timestamp: 1, source: 2, kind: 3, parent_id: 4 };
	const place = (n: number, name: string, rule: object, ...input: ExactJson[]) => ({
		...{ path: [n, name], ...rule },
		...(input.length > 0 ? { input: input[0] } : {}),
	});
	test.each<[string, ExactJson, object[]]>([
		["a body that is not an array", {}, [{ path: [], ...LIST }]],
		["an event that is not an object", [event(), "x"], [{ path: [1], ...OBJECT }]],
		["an event without an id", [withoutId], [place(0, "id", MISSING)]],
		["an id that is null", [event({ id: null })], [place(0, "id", TEXT, null)]],
		["an empty id", [event({ id: "" })], [place(0, "id", SHORT, "")]],
		["an id that is too long", [event({ id: long })], [place(0, "id", LONG)]],
		["numbers", [event(numbers)], Object.entries(numbers).map(([name, input]) => place(0, name, TEXT, input))],
		[
			"two bad events",
			[event({ timestamp: "x" }), event({ id: "e2", kind: null })],
			[place(1, "kind", TEXT, null), place(0, "timestamp", DATE, "x")],
		],
		["JSON that is nested too deep", [event({ a: nested(32), b: nested(33) })], [place(0, "b", TOO_DEEP)]],
		[
			"lone surrogates",
			[event({ id: "\ud800", a: ["\udfff"] })],
			[place(0, "id", UNICODE, "\ud800"), { path: [0, "a", 0], ...UNICODE }],
		],
	])("for %s", (_name, events, violations) => {
		const body = Buffer.from(stringifyExactJson(events));
		expect(violationsOf(() => format.parse(ID, body))).toEqual(violations);
	});

	test("for a number that is not finite", () => {
		const body = Buffer.from(stringifyExactJson([event({ a: 0 })]).replace('"a":0', '"a":1e400'));
		expect(violationsOf(() => format.parse(ID, body))).toEqual([
			{ path: [0, "a"], type: "finite_number", message: "Input should be a finite number" },
		]);
	});

	test("for text that is not JSON", () => {
		expect(violationsOf(() => format.parse(ID, Buffer.from("[{")))).toMatchObject([
			{ type: "json_invalid", path: [2] },
		]);
	});

	test("with at most 100 violations, and the id of the conversation in the error", () => {
		const events = Array.from({ length: 500 }, (_, index) => event({ id: `e${index}`, timestamp: "x" }));
		expect(violationsOf(() => parse(events))).toHaveLength(100);
		expect(() => parse(events)).toThrow(
			expect.objectContaining({
				kind: "invalid_record",
				conversationId: ID,
				message: `100 rules are broken (first: 0.timestamp: ${DATE.message})`,
			}),
		);
		expect(() => format.parse(ID, Buffer.from("["))).toThrow(expect.objectContaining({ conversationId: ID }));
	});

	test("for more secrets than a record may have", () => {
		const secrets = (count: number) => Array.from({ length: count }, () => ({ api_key: "k" }));
		expect(parse([event({ a: secrets(MAX_SECRETS) })]).events[0]?.secrets).toHaveLength(MAX_SECRETS);
		const half = secrets(MAX_SECRETS / 2);
		const tooMany = [event({ a: half }), event({ id: "e2", a: half, token: "t" })];
		expect(violationsOf(() => parse(tooMany))).toEqual([
			{ path: [], type: "value_error", message: "Value error, more than 10000 secrets" },
		]);
	});

	test("for more values than a record may have, over both transports", () => {
		const many = Array.from({ length: 100_000 }, () => 0);
		const events = [event({ a: many }), event({ id: "e2", a: many })];
		const tooMany = [{ path: [], type: "value_error", message: "Value error, more than 200000 elements and members" }];
		expect(violationsOf(() => parse(events))).toEqual(tooMany);
		expect(violationsOf(() => format.fromRequest(eventsRequest(ID, events)))).toEqual(tooMany);
	});
});

test("an event id may have 1 to 256 characters, however many bytes they take", () => {
	const ids = ["x", "😀".repeat(MAX_EVENT_ID_LENGTH)];
	expect(parse(ids.map((id) => event({ id }))).events.map(({ eventId }) => eventId)).toEqual(ids);
});

describe("a protobuf request", () => {
	type Init = MessageInitShape<typeof IngestConversationEventsRequestSchema>;
	const request = (init: Init) =>
		toBinary(IngestConversationEventsRequestSchema, create(IngestConversationEventsRequestSchema, init));
	const refused = (...events: Init["events"] & object) =>
		violationsOf(() => format.fromRequest(request({ conversationId: ID, events })));
	const valid = { id: "e1", timestamp: "2026-11-21T08:57:29", source: "agent", kind: "K" };

	test("is read as the JSON texts of its events, with the envelope first", () => {
		const members = ["", "{}", ' {"b": 1, "a": 2, "b": 3.0} ', '{"parent_id":null}'];
		const events = members.map((membersJson, index) => ({ ...valid, id: `${index}`, membersJson }));
		const bytes = request({
			conversationId: ID.replaceAll("-", ""),
			events: [...events, { ...valid, id: "p", parentId: "0" }],
		});
		const { batch } = format.fromRequest(bytes);
		expect(batch.conversationId).toBe(ID);
		const envelope = (id: string) => `"id":"${id}","timestamp":"2026-11-21T08:57:29","source":"agent","kind":"K"`;
		expect(plain(batch)).toEqual([
			`{${envelope("0")}}`,
			`{${envelope("1")}}`,
			`{${envelope("2")},"b":3,"a":2}`,
			`{${envelope("3")},"parent_id":null}`,
			`{${envelope("p")},"parent_id":"0"}`,
		]);
	});

	test("is refused for violations in its events", () => {
		expect(refused({ ...valid, timestamp: "x" }, {})).toEqual([
			...["id", "timestamp", "source", "kind"].map((name) => ({ path: [1, name], ...MISSING })),
			{ path: [0, "timestamp"], ...DATE, input: "x" },
		]);
		expect(refused({ ...valid, membersJson: "[]" }, { ...valid, membersJson: "1" })).toEqual(
			[0, 1].map((index) => ({
				path: [index, "members_json"],
				type: "dict_type",
				message: "Input should be a valid dictionary",
			})),
		);
		expect(refused({ ...valid, membersJson: '{"a":' })).toMatchObject([
			{ path: [0, "members_json", 5], type: "json_invalid", message: "JSON decode error" },
		]);
		expect(refused({ ...valid, membersJson: stringifyExactJson({ a: nested(33) }) })).toEqual([
			{ path: [0, "a"], ...TOO_DEEP },
		]);
		expect(refused({ ...valid, membersJson: '{"a":"\\ud800"}' })).toEqual([{ path: [0, "a"], ...UNICODE }]);
	});

	test("is refused when members_json has a member that has a field", () => {
		const hasField = valueError("this member has a field of its own in the message");
		const again = '{"id":"x","timestamp":1,"a":1,"source":null,"kind":"k","parent_id":"p"}';
		expect(refused({ ...valid, membersJson: again })).toEqual(
			["id", "timestamp", "source", "kind", "parent_id"].map((name) => ({
				path: [0, "members_json", name],
				...hasField,
			})),
		);
		expect(refused({ ...valid, parentId: "p", membersJson: '{"parent_id":null}' })).toEqual([
			{ path: [0, "members_json", "parent_id"], ...hasField },
		]);
	});

	test("fails with invalid_argument if it cannot be decoded or has no valid conversation_id", () => {
		expect(() => format.fromRequest(Buffer.from([0xff]))).toThrow(
			new ServiceError(
				"invalid_argument",
				"The request cannot be read as a conversations.v1.IngestConversationEventsRequest",
			),
		);
		const noUuid = new ServiceError("invalid_argument", "conversation_id is not a UUID");
		expect(() => format.fromRequest(request({ conversationId: "x", events: [valid] }))).toThrow(noUuid);
		expect(() => format.parse("", Buffer.from("[]"))).toThrow(noUuid);
	});
});

test("a stored text that is not an event fails with data_loss", () => {
	const version = parse([event()]).events[0]?.redactionVersion ?? 0;
	for (const text of ["", "{", "[]", "1", '{"id":"e1"}']) {
		const stored = { text: Buffer.from(text), secrets: ["/a"], redactionVersion: version };
		expect(() => format.open(ID, stored, "redacted")).toThrow(
			expect.objectContaining({ kind: "data_loss", message: "The stored event cannot be read", conversationId: ID }),
		);
	}
});
