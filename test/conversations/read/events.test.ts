import { create, type JsonObject } from "@bufbuild/protobuf";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
	type ConversationEventEntry,
	ConversationEventEntrySchema,
	type ConversationEventFilter,
	ConversationEventFilterSchema,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import type { EventsRequest } from "../../../src/conversations/read/events.ts";
import { allPages, event, expectPages, Reading, refusal } from "./reading.ts";

const A = "0190d6a0-0000-7000-8000-00000000000a";
const B = "0190d6a0-0000-7000-8000-00000000000b";
const C = "0190d6a0-0000-7000-8000-00000000000c";
let reading: Reading;

beforeEach(async () => {
	reading = await Reading.open();
});

afterEach(async () => {
	await reading[Symbol.asyncDispose]();
});

const ALL: EventsRequest = {
	conversationId: "",
	afterSequence: 0n,
	pageSize: 0,
	pageToken: "",
	filter: undefined,
	secrets: "redacted",
};

function kinds(...values: string[]): ConversationEventFilter {
	return create(ConversationEventFilterSchema, { kinds: values });
}

/** Lists all pages in order. */
async function pages(request: Partial<EventsRequest>): Promise<(readonly ConversationEventEntry[])[]> {
	const all = await allPages((pageToken) => reading.events.list({ ...ALL, ...request, pageToken }));
	return all.map(({ entries }) => entries);
}

async function sequences(request: Partial<EventsRequest>): Promise<bigint[]> {
	return (await pages(request)).flat().map(({ sequence }) => sequence);
}

/** Stores events of a conversation one after the other. */
async function keep(count: number, conversationId: string, members: JsonObject = {}): Promise<void> {
	for (let index = 0; index < count; index++) await reading.keepEvents(conversationId, event(`${index}`, members));
}

test("the pages of any request together are all matching events after its start, oldest first", async () => {
	const kept: { id: string; kind: string; source: string; second: bigint; sequence: bigint }[] = [];
	for (let index = 0; index < 60; index++) {
		const id = [A, B, C][(index * index) % 3] ?? A;
		const [kind, source] = [`kind ${index % 4}`, index % 5 === 0 ? "user" : "agent"];
		const second = BigInt((index * 7) % 60);
		const timestamp = `1970-01-01T00:00:${String(second).padStart(2, "0")}`;
		kept.push({
			id,
			kind,
			source,
			second,
			sequence: await reading.keepEvents(id, event(`${index}`, { kind, source, timestamp })),
		});
	}
	const seconds = fc.option(fc.bigInt({ min: 0n, max: 60n }), { nil: undefined });
	await fc.assert(
		fc.asyncProperty(
			fc.constantFrom("", A, B.toUpperCase(), "0190d6a0-0000-7000-8000-00000000000d"),
			fc.bigInt({ min: 0n, max: 60n }),
			fc.integer({ min: 1, max: 70 }),
			fc.subarray(["kind 0", "kind 1", "other"]),
			fc.subarray(["user", "agent"]),
			seconds,
			seconds,
			async (conversationId, afterSequence, pageSize, kinds, sources, from, to) => {
				const filter = create(ConversationEventFilterSchema, {
					kinds,
					sources,
					...(from === undefined ? {} : { happenedFrom: { seconds: from } }),
					...(to === undefined ? {} : { happenedTo: { seconds: to } }),
				});
				const found = await pages({ conversationId, afterSequence, pageSize, filter });
				const expected = kept
					.filter(({ id }) => conversationId === "" || id === conversationId.toLowerCase())
					.filter(({ kind }) => kinds.length === 0 || kinds.includes(kind))
					.filter(({ source }) => sources.length === 0 || sources.includes(source))
					.filter(({ second }) => (from === undefined || second >= from) && (to === undefined || second < to))
					.map(({ sequence }) => sequence)
					.filter((sequence) => sequence > afterSequence);
				expectPages(found, pageSize, expected);
			},
		),
		{ numRuns: 100 },
	);
});

test("an event is listed as it was sent, as a message and as JSON text", async () => {
	const sent = {
		...event("e-1", { parent_id: "e-0", z: [1, { b: null }], a: "x" }),
		timestamp: "1970-01-01T00:00:01.5",
	};
	const sequence = await reading.keepEvents(A, sent);
	const [[entry] = []] = await pages({ conversationId: A });
	expect(entry).toEqual(
		create(ConversationEventEntrySchema, {
			sequence,
			conversationId: A,
			happenedAt: { seconds: 1n, nanos: 500_000_000 },
			origin: UpdateOrigin.POSTED,
			event: {
				id: "e-1",
				timestamp: "1970-01-01T00:00:01.5",
				source: "agent",
				kind: "MessageEvent",
				parentId: "e-0",
				membersJson: '{"z":[1,{"b":null}],"a":"x"}',
			},
			...(entry?.receivedAt === undefined ? {} : { receivedAt: entry.receivedAt }),
		}),
	);
	const page = await reading.events.listTexts({ ...ALL, conversationId: A });
	expect(page).toEqual({
		entries: [
			{
				...{ sequence, receivedAt: expect.any(BigInt), happenedAt: 1_500_000n },
				...{ text: JSON.stringify(sent), origin: UpdateOrigin.POSTED },
			},
		],
		nextPageToken: "",
	});
});

test("a page of large events ends before 3.5 MiB, but has at least one event", async () => {
	for (const [id, size] of [300, 3400, 10, 5000, 10].entries())
		await reading.keepEvents(A, event(`${id}`, { text: "x".repeat(size * 1024) }));
	expect((await pages({})).map((page) => page.length)).toEqual([1, 2, 1, 1]);
});

test("a start in the pruned range or beyond the newest sequence is refused with out_of_range", async () => {
	await keep(2, A);
	await keep(4, B);
	await reading.pruneEvents(3);
	expect(await sequences({})).toEqual([4n, 5n, 6n]);
	expect(await sequences({ conversationId: A, afterSequence: 2n })).toEqual([]);
	for (const conversationId of ["", B])
		expect(await refusal(pages({ conversationId, afterSequence: 2n }))).toEqual({
			kind: "out_of_range",
			message:
				"Events after sequence 2 have been pruned; start after sequence 3 or later, " +
				"or after 0 to receive all events that are kept",
		});
	expect(await refusal(pages({ afterSequence: 7n }))).toEqual({
		kind: "out_of_range",
		message: "after_sequence 7 is beyond the newest sequence, which is 6: it comes from another store",
	});
});

test("a page token is valid only for its conversation, start and filter, however they are written", async () => {
	await keep(3, A);
	const request = { ...ALL, conversationId: A, filter: kinds("other", "MessageEvent"), pageSize: 2 };
	const { nextPageToken: pageToken } = await reading.events.list(request);
	const next = { ...request, conversationId: `{${A}}`, filter: kinds("MessageEvent", "other", "other"), pageToken };
	expect((await reading.events.list(next)).entries.map(({ sequence }) => sequence)).toEqual([3n]);
	expect((await reading.events.listTexts(next)).entries.map(({ sequence }) => sequence)).toEqual([3n]);
	const refused = {
		kind: "invalid_argument",
		message: "page_token is not valid for this list and filter",
	};
	for (const other of [
		{ conversationId: "" },
		{ afterSequence: 1n },
		{ filter: undefined },
		{ filter: kinds("other") },
	])
		expect(await refusal(reading.events.list({ ...next, ...other }))).toEqual(refused);
});

test("an invalid request is refused with the name of the field", async () => {
	const refused = async (request: Partial<EventsRequest>) => [
		(await refusal(reading.events.list({ ...ALL, ...request }))).message,
		(await refusal(reading.events.listTexts({ ...ALL, ...request }))).message,
	];
	const same = (message: string) => [message, message];
	expect(await refused({ pageSize: -1 })).toEqual(same("page_size must not be negative"));
	expect(await refused({ afterSequence: -1n })).toEqual(same("after_sequence must not be negative"));
	expect(await refused({ conversationId: "x" })).toEqual(same("conversation_id is not a UUID"));
	expect(await refused({ filter: kinds("\ud800") })).toEqual(same("filter.kinds is not valid Unicode"));
});

test("an unreadable event is listed as unreadable among the others, and reported", async () => {
	await keep(3, A);
	reading.damageEvent(2n);
	const [page] = await pages({});
	expect(page?.map(({ sequence, unreadable, event }) => [sequence, unreadable, event?.id])).toEqual([
		[1n, false, "0"],
		[2n, true, undefined],
		[3n, false, "2"],
	]);
	expect(reading.unreadableEvents).toEqual([2n]);
	const { entries } = await reading.events.listTexts(ALL);
	expect(entries.map(({ text }) => text === undefined)).toEqual([false, true, false]);
	expect(reading.unreadableEvents).toEqual([2n, 2n]);
});
