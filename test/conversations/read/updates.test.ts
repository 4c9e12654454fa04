import { create, fromBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
	type ConversationUpdate,
	ConversationUpdateSchema,
	ListConversationUpdatesRequestSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { UpdateChange, UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import type { UpdatesRequest } from "../../../src/conversations/read/updates.ts";
import { allPages, expectPages, Reading, refusal } from "./reading.ts";

const A = "0190d6a0-0000-7000-8000-00000000000a";
const B = "0190d6a0-0000-7000-8000-00000000000b";
const C = "0190d6a0-0000-7000-8000-00000000000c";
/** An origin of a newer release, decoded from a request: field 7 with the value 9. */
const UNKNOWN_ORIGIN = fromBinary(ListConversationUpdatesRequestSchema, Buffer.from([7 << 3, 9])).origin;
let reading: Reading;

beforeEach(async () => {
	reading = await Reading.open();
});

afterEach(async () => {
	await reading[Symbol.asyncDispose]();
});

const ALL: UpdatesRequest = {
	conversationId: "",
	afterSequence: 0n,
	pageSize: 0,
	pageToken: "",
	full: false,
	secrets: "redacted",
	secretPaths: false,
};

/** Lists all pages in order. */
async function pages(request: Partial<UpdatesRequest>): Promise<(readonly ConversationUpdate[])[]> {
	const all = await allPages((pageToken) => reading.updates.list({ ...ALL, ...request, pageToken }));
	return all.map(({ entries }) => entries);
}

async function sequences(request: Partial<UpdatesRequest>): Promise<bigint[]> {
	return (await pages(request)).flat().map((update) => update.sequence);
}

test("the pages of any request together are all updates after its start, oldest first", async () => {
	const kept: { id: string; sequence: bigint }[] = [];
	for (let count = 0; count < 60; count++) {
		const id = [A, B, C][(count * count) % 3] ?? A;
		kept.push({ id, sequence: (await reading.keep({ id, title: `title ${count}` })).sequence });
	}
	const conversationIds = fc.constantFrom("", A, B.toUpperCase(), C, "0190d6a0-0000-7000-8000-00000000000d");
	await fc.assert(
		fc.asyncProperty(
			conversationIds,
			fc.bigInt({ min: 0n, max: 60n }),
			fc.integer({ min: 1, max: 70 }),
			fc.boolean(),
			async (conversationId, afterSequence, pageSize, full) => {
				const found = await pages({ conversationId, afterSequence, pageSize, full });
				const expected = kept
					.filter(
						({ id, sequence }) =>
							(conversationId === "" || id === conversationId.toLowerCase()) && sequence > afterSequence,
					)
					.map(({ sequence }) => sequence);
				expectPages(found, pageSize, expected);
			},
		),
		{ numRuns: 100 },
	);
});

test("a page of whole records ends before 3.5 MiB, but has at least one update", async () => {
	for (const size of [300, 3400, 10, 5000, 10]) await reading.keep({ agent_state: { text: "x".repeat(size * 1024) } });
	expect((await pages({ full: true })).map((page) => page.length)).toEqual([1, 2, 1, 1]);
});

test("a page of large summaries ends before 3.5 MiB", async () => {
	for (let count = 0; count < 3; count++) await reading.keep({ title: "x".repeat(1.5 * 1024 * 1024) });
	expect((await pages({})).map((page) => page.length)).toEqual([2, 1]);
	expect((await pages({ full: true })).map((page) => page.length)).toEqual([1, 1, 1]);
});

test("a start in the pruned range is refused, but 0 and the last pruned sequence are accepted", async () => {
	for (const [id, title] of [
		[A, "1"],
		[B, "2"],
		[A, "3"],
		[B, "4"],
		[A, "5"],
		[A, "6"],
		[B, "7"],
	])
		await reading.keep({ id: id ?? A, title: title ?? "" });
	await reading.pruneTo(2);
	expect(await sequences({})).toEqual([4n, 5n, 6n, 7n]);
	expect(await sequences({ afterSequence: 3n })).toEqual([4n, 5n, 6n, 7n]);
	for (const afterSequence of [1n, 2n])
		expect(await refusal(pages({ afterSequence }))).toEqual({
			kind: "out_of_range",
			message:
				`Updates after sequence ${afterSequence} have been pruned; start after sequence 3 or later, ` +
				"or after 0 to receive all updates that are kept",
		});
});

test("pruning of other conversations does not limit the start of a list of one conversation", async () => {
	await reading.keep({ id: A, title: "1" });
	await reading.keep({ id: A, title: "2" });
	for (let count = 0; count < 4; count++) await reading.keep({ id: B, title: `${count}` });
	await reading.keep({ id: A, title: "3" });
	await reading.pruneTo(3);
	expect(await sequences({})).toEqual([1n, 2n, 4n, 5n, 6n, 7n]);
	expect(await sequences({ conversationId: A, afterSequence: 1n })).toEqual([2n, 7n]);
	expect(await sequences({ conversationId: A, afterSequence: 2n })).toEqual([7n]);
	const refused = { kind: "out_of_range", message: expect.stringContaining("start after sequence 3 or later") };
	expect(await refusal(pages({ conversationId: B, afterSequence: 2n }))).toEqual(refused);
	expect(await sequences({ conversationId: C, afterSequence: 2n })).toEqual([]);
	expect(await refusal(pages({ afterSequence: 2n }))).toEqual(refused);
});

test("a page token is valid only for its conversation and start, however they are written", async () => {
	for (let count = 0; count < 3; count++) await reading.keep({ id: A, title: `${count}` });
	const { nextPageToken: pageToken } = await reading.updates.list({ ...ALL, conversationId: A, pageSize: 2 });
	const next = await reading.updates.list({ ...ALL, conversationId: `{${A}}`, pageToken, full: true });
	expect(next.entries.map((update) => update.sequence)).toEqual([3n]);
	const refused = {
		kind: "invalid_argument",
		message: "page_token is not valid for this list and filter",
	};
	expect(await refusal(reading.updates.list({ ...ALL, pageToken }))).toEqual(refused);
	expect(await refusal(reading.updates.list({ ...ALL, conversationId: B, pageToken }))).toEqual(refused);
	expect(await refusal(reading.updates.list({ ...ALL, conversationId: A, afterSequence: 1n, pageToken }))).toEqual(
		refused,
	);
	const list = { ...ALL, conversationId: undefined, filter: undefined, pageToken };
	expect(await refusal(reading.list.list(list))).toEqual(refused);
});

test("a list of one origin has only its updates, and a page token is valid only for that origin", async () => {
	const posted = [await reading.keep({ id: A, title: "1" }), await reading.keep({ id: A, title: "2" })];
	const byEvents = [await reading.keepLive({ id: B }), await reading.keepLive({ id: C })];
	expect(byEvents).toEqual([3n, 4n]);
	expect(await sequences({ origin: UpdateOrigin.POSTED })).toEqual(posted.map(({ sequence }) => sequence));
	for (const [pageSize, conversationId, expected] of [[1, "", byEvents] as const, [0, C, [4n]] as const])
		expect(await sequences({ origin: UpdateOrigin.EVENTS, pageSize, conversationId })).toEqual(expected);
	expect(await sequences({ origin: UpdateOrigin.UNSPECIFIED })).toEqual([1n, 2n, 3n, 4n]);
	const origins = (await pages({})).flat().map(({ origin }) => origin);
	expect(origins).toEqual([1, 1, 2, 2]);
	const { nextPageToken: pageToken } = await reading.updates.list({ ...ALL, origin: UpdateOrigin.EVENTS, pageSize: 1 });
	expect((await refusal(reading.updates.list({ ...ALL, pageToken }))).kind).toBe("invalid_argument");
});

test("an invalid request is refused with the name of the field", async () => {
	const list = (request: Partial<UpdatesRequest>) => refusal(reading.updates.list({ ...ALL, ...request }));
	expect(await list({ pageSize: -1 })).toEqual({ kind: "invalid_argument", message: "page_size must not be negative" });
	expect(await list({ afterSequence: -1n })).toEqual({
		kind: "invalid_argument",
		message: "after_sequence must not be negative",
	});
	expect(await list({ conversationId: "x" })).toEqual({
		kind: "invalid_argument",
		message: "conversation_id is not a UUID",
	});
	expect(await list({ origin: UNKNOWN_ORIGIN })).toEqual({
		kind: "invalid_argument",
		message: "origin is not a known origin",
	});
});

test("a page token stays valid as long as only updates that were already read are pruned", async () => {
	for (let count = 0; count < 6; count++) await reading.keep({ id: A, title: `${count}` });
	const first = await reading.updates.list({ ...ALL, afterSequence: 1n, pageSize: 3 });
	await reading.pruneTo(3);
	const next = { ...ALL, afterSequence: 1n, pageToken: first.nextPageToken };
	expect((await reading.updates.list(next)).entries.map(({ sequence }) => sequence)).toEqual([5n, 6n]);
	await reading.pruneTo(1);
	expect((await refusal(reading.updates.list(next))).kind).toBe("out_of_range");
});

test("a start in the history of a removed conversation is refused, also after it is created again", async () => {
	await reading.keep({ id: A, title: "1" });
	await reading.keep({ id: B });
	await reading.keep({ id: A, execution_status: "deleting" });
	while ((await reading.store.prune({ receivedBefore: 2n ** 60n, limit: 100 })) > 0);
	const refused = { kind: "out_of_range", message: expect.stringContaining("start after sequence 3 or later") };
	expect(await refusal(pages({ conversationId: A, afterSequence: 1n }))).toEqual(refused);
	await reading.keep({ id: A, title: "2" });
	expect(await refusal(pages({ conversationId: A, afterSequence: 1n }))).toEqual(refused);
	expect(await sequences({ conversationId: A, afterSequence: 3n })).toEqual([4n]);
	expect(await sequences({ conversationId: B, afterSequence: 1n })).toEqual([2n]);
});

test("a start beyond the newest sequence is refused with an error that names it", async () => {
	await reading.keep({ id: A });
	expect(await sequences({ afterSequence: 1n })).toEqual([]);
	for (const conversationId of ["", A])
		expect(await refusal(pages({ conversationId, afterSequence: 2n }))).toEqual({
			kind: "out_of_range",
			message: "after_sequence 2 is beyond the newest sequence, which is 1: it comes from another store",
		});
});

test("an unreadable update is listed as unreadable among the others, and reported", async () => {
	for (const title of ["1", "2", "3"]) await reading.keep({ id: A, title });
	reading.damage(2n);
	const [page] = await pages({ full: true });
	expect(page?.map(({ sequence, unreadable, summary }) => [sequence, unreadable, summary?.title])).toEqual([
		[1n, false, "1"],
		[2n, true, undefined],
		[3n, false, "3"],
	]);
	const [, second, third] = page ?? [];
	expect(second).toEqual(
		create(ConversationUpdateSchema, {
			sequence: 2n,
			conversationId: A,
			change: UpdateChange.UPDATED,
			current: true,
			origin: UpdateOrigin.POSTED,
			unreadable: true,
			...(second?.receivedAt === undefined ? {} : { receivedAt: second.receivedAt }),
		}),
	);
	expect(third?.changedFields).toBe(undefined);
	expect(new Set(reading.unreadable.map(({ sequence }) => sequence))).toEqual(new Set([2n]));
});
