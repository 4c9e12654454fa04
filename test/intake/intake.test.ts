import { createSecretKey, randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { afterEach, beforeEach, expect, test } from "vitest";
import { IngestConversationRequestSchema } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ingestOf } from "../../src/conversations/ingest/ingest.ts";
import { EventFormat } from "../../src/events/event-format.ts";
import { STATE_UPDATE } from "../../src/events/state-update.ts";
import { SharedIntake } from "../../src/intake/intake.ts";
import { recordIntake } from "../../src/intake/record-intake.ts";
import { stringifyExactJson } from "../../src/record/json/exact-json.ts";
import { mergeRecord } from "../../src/record/record-delta.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { RecordVault } from "../../src/record/secrets/record-vault.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import type { ThreadQueue } from "../../src/threads/worker-thread.ts";
import { record } from "../support/fixtures.ts";
import { TempFolder } from "../support/temp.ts";

/** Signal of a sender that still waits. */
const WAITING = { aborted: false };

const encryptionKeys = [createSecretKey(Buffer.alloc(32, 7))];
const lines: unknown[] = [];
const log = { error: (...line: unknown[]) => lines.push(line) };
const format = new RecordFormat();
const vault = new RecordVault(format, encryptionKeys);
let intake: SharedIntake;
let underWay: number;
/** Numbers of calls that the threads have. */
const queues = new Map<string, () => ThreadQueue>();

beforeEach(() => {
	lines.length = 0;
	underWay = 1;
	intake = new SharedIntake({
		here: recordIntake(format, vault, new EventFormat(format, encryptionKeys, "UTC")),
		underWay: () => underWay,
		data: { encryptionKeys, eventTimeZone: "UTC", senderTimeZones: new Map() },
		log,
		observer: {
			onThread: (name, queue) => queues.set(name, queue),
			onGroup: () => undefined,
		},
	});
});

afterEach(() => intake[Symbol.asyncDispose]());

/** Returns the thread that has a call which was just made; `main` when no other one has it. */
const placeOf = (): string => [...queues].find(([, queue]) => queue().calls > 0)?.[0] ?? "main";

/** Returns an encoded IngestConversationRequest with an encoded record. */
const ingestRequestOf = (record: Uint8Array) =>
	new BinaryWriter()
		.tag(IngestConversationRequestSchema.field.conversation.number, WireType.LengthDelimited)
		.bytes(record)
		.finish();
const body = (members: JsonObject) => Buffer.from(JSON.stringify(record(members)));

test("records of every size are parsed and opened alike, in every place", async () => {
	for (const [size, place] of [
		[10, "main"],
		[2 ** 16, "intake"],
		[2 ** 21, "large-intake"],
	] as const) {
		const title = "x".repeat(size);
		const parsing = intake.fromJson(body({ title, agent_state: { token: "secret" } }), WAITING);
		expect(placeOf()).toBe(place);
		const update = await parsing;
		const opened = vault.open(update.record.bytes, "plaintext");
		expect([opened.title, opened.agentState]).toEqual([title, { token: "secret" }]);
		const json = stringifyExactJson(format.toJson(vault.open(update.record.bytes, "redacted")));
		expect(JSON.parse(json)).toMatchObject({ title, agent_state: { token: "**********" } });
	}
	expect(lines).toEqual([]);
});

test("a small record is parsed and compared in the calling thread only while few requests are under way", async () => {
	const places = async (requests: number) => {
		underWay = requests;
		const seen: string[] = [];
		const made = async <Result>(call: Promise<Result>): Promise<Result> => {
			seen.push(placeOf());
			return await call;
		};
		const { record } = await made(intake.fromJson(body({ title: "a" }), WAITING));
		await made(intake.fromRequest(ingestRequestOf(record.bytes), WAITING));
		await made(intake.isSame({ stored: record.bytes, arriving: record.bytes }));
		return seen;
	};
	expect(await places(4)).toEqual(["main", "main", "main"]);
	expect(await places(5)).toEqual(["main", "intake", "intake"]);
	expect(await places(16)).toEqual(["main", "intake", "intake"]);
	expect(await places(17)).toEqual(["intake", "intake", "intake"]);
	expect(await places(4)).toEqual(["main", "main", "main"]);
});

test("a small batch is parsed in the calling thread only without state updates and while few requests are under way", async () => {
	const { conversationId } = await intake.fromJson(body({}), WAITING);
	const envelope = { id: "e", timestamp: "2026-01-01T00:00:00", source: "agent" };
	const placeOfBatch = async (kind: string, size: number, requests: number) => {
		underWay = requests;
		const batch = Buffer.from(JSON.stringify([{ ...envelope, kind, note: "x".repeat(size) }]));
		const reading = intake.eventsFromJson({ conversationId, body: batch, sender: "agent", receivedAt: 1n }, WAITING);
		const place = placeOf();
		const [event] = (await reading).batch.events;
		expect([event?.kind, event?.eventId, JSON.parse(String(event && Buffer.from(event.text)))]).toEqual([
			kind,
			"e",
			{ ...envelope, kind, note: "x".repeat(size) },
		]);
		return place;
	};
	expect(await placeOfBatch("PauseEvent", 10, 16)).toBe("main");
	expect(await placeOfBatch("PauseEvent", 10, 17)).toBe("intake");
	expect(await placeOfBatch("PauseEvent", 2 ** 16, 1)).toBe("intake");
	expect(await placeOfBatch(STATE_UPDATE, 10, 1)).toBe("intake");
});

test("an unexpected error in the calling thread has the same form as one in a thread, and is logged", async () => {
	await using broken = new SharedIntake({
		here: {
			...recordIntake(format, vault, new EventFormat(format, encryptionKeys, "UTC")),
			fromJson: () => {
				throw new TypeError("a value of the record");
			},
		},
		underWay: () => 1,
		data: { encryptionKeys, eventTimeZone: "UTC", senderTimeZones: new Map() },
		log,
	});
	const error = { kind: "internal", message: "the record could not be processed" };
	await expect(broken.fromJson(body({}), WAITING)).rejects.toMatchObject(error);
	expect(lines).toMatchObject([[{ err: error, operation: "fromJson" }, "the intake failed"]]);
});

test("events of every size are parsed and applied alike, in either thread", async () => {
	for (const size of [10, 2 ** 21]) {
		const { conversationId, record } = await intake.fromJson(body({ agent_state: { token: "secret" } }), WAITING);
		const event = { id: "e", timestamp: "2026-01-01T00:00:00", source: "environment", kind: STATE_UPDATE };
		const value = { note: "x".repeat(size), token: "other" };
		const batch = Buffer.from(JSON.stringify([{ ...event, key: "agent_state", value }]));
		const { batch: read } = await intake.eventsFromJson({ conversationId, body: batch, sender: "agent" }, WAITING);
		const { memberTimes, version, refused } = await intake.applyEvents({
			conversationId,
			current: { memberTimes: undefined, postedAt: 0n, record },
			updates: read.events.map((event) => ({ event, happenedAt: event.happenedAt })),
		});
		const merged = version && vault.open(mergeRecord(record.bytes, version.record.bytes), "plaintext");
		expect([merged?.agentState, refused]).toEqual([value, []]);
		expect(JSON.parse(memberTimes)).toEqual({ agent_state: "1767225600000000" });
	}
	expect(lines).toEqual([]);
});

test("an invalid record is refused with its violations, from every place", async () => {
	for (const title of [1, "x".repeat(2 ** 16), "x".repeat(2 ** 21)]) {
		const refused = intake.fromJson(body({ title, max_iterations: -1, id: "no uuid" }), WAITING);
		await expect(refused).rejects.toMatchObject({
			kind: "invalid_record",
			violations: expect.arrayContaining([expect.objectContaining({ path: ["id"] })]),
		});
	}
	expect(lines).toEqual([]);
});

test("an encrypted record that is posted again with its tags in another order is a duplicate", async () => {
	using folder = new TempFolder();
	const isSameRecord = (stored: Uint8Array, arriving: Uint8Array) => intake.isSame({ stored, arriving });
	await using store = await openSqliteStore(folder.file("conversations.db"), log, { isSameRecord });
	const events = { applyUnappliedEvents: () => Promise.reject(new Error("there are no events")) };
	const ingest = ingestOf(store, intake, events);
	const id = randomUUID();
	const send = (members: JsonObject) =>
		ingest.json(
			body({ id, agent_state: { token: "secret" }, ...members }),
			{ sender: "agent", owner: undefined },
			WAITING,
		);
	const first = await send({ tags: { a: "1", b: "2" } });
	expect(await send({ tags: { b: "2", a: "1" } })).toEqual({ ...first, duplicate: true });
	expect(await send({ tags: { a: "1", b: "3" } })).toMatchObject({ sequence: 2n, duplicate: false });
	expect(await send({ tags: { a: "1", b: "3" }, agent_state: { token: "tresec" } })).toMatchObject({
		sequence: 3n,
		duplicate: false,
	});
	expect(lines).toEqual([]);
});
