import { createSecretKey, type KeyObject } from "node:crypto";
import { create, type JsonObject } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
	type ConversationUpdate,
	ConversationUpdateSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { UpdateChange, UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import { UpdateViews } from "../../../src/conversations/read/updates.ts";
import { ServiceError } from "../../../src/errors.ts";
import { fromMicroseconds } from "../../../src/record/json/scalars.ts";
import { RecordVault } from "../../../src/record/secrets/record-vault.ts";
import { summarize } from "../../../src/record/summary.ts";
import type { StoredUpdate } from "../../../src/store/entries.ts";
import { record } from "../../support/fixtures.ts";
import { format, Reading } from "./reading.ts";

const ID = "0190d6a0-0000-7000-8000-000000000001";
const SUMMARY = { full: false, secrets: "redacted", secretPaths: true } as const;
const FULL = { ...SUMMARY, full: true } as const;
const ignore = () => undefined;
const key = (fill: number): KeyObject => createSecretKey(Buffer.alloc(32, fill));

function updates(reading: Reading): Promise<StoredUpdate[]> {
	return reading.store.updates.list({ after: 0n, limit: 1000, withRecords: true });
}

/** Returns the paths of the changed fields of each stored update. */
async function changed(reading: Reading, views = reading.views): Promise<(string[] | undefined)[]> {
	const all = [];
	for (const stored of await updates(reading)) all.push((await views.toUpdate(stored, SUMMARY)).changedFields?.paths);
	return all;
}

function native(llm: JsonObject): JsonObject {
	return { id: ID, agent: { kind: "Agent", llm: { model: "m", ...llm } } };
}

test("changed fields have a leaf only while the conversation has no events, which change it without an update", async () => {
	await using reading = await Reading.open();
	const post = (day: number, leaf: string) =>
		reading.keep({ id: ID, updated_at: `2026-01-0${day}T00:00:00Z`, leaf_event_id: leaf });
	await post(1, "m1");
	await post(2, "m2");
	const event = { id: "m9", timestamp: "2026-01-03T00:00:00Z", source: "agent", kind: "MessageEvent" };
	await reading.keepEvents(ID, event);
	const leafOf = async (sequence?: bigint) =>
		(await reading.getDecoded({ id: ID, sequence, secrets: "redacted" })).conversation.leafEventId;
	expect([await leafOf(), await leafOf(2n)]).toEqual(["m9", "m2"]);
	await post(4, "m9");
	const views = await Promise.all((await updates(reading)).map((one) => reading.views.toUpdate(one, SUMMARY)));
	expect(views.map(({ changedFields }) => changedFields?.paths)).toEqual([
		undefined,
		["leaf_event_id", "updated_at"],
		["updated_at"],
	]);
});

test("the view of an update has its change, changed fields, time of receipt, summary and record", async () => {
	await using reading = await Reading.open();
	const bodies: JsonObject[] = [
		{ id: ID, updated_at: "2026-01-01T00:00:00Z" },
		{ id: ID, updated_at: "2026-01-03T00:00:00Z", execution_status: "paused" },
		{ id: ID, updated_at: "2026-01-02T00:00:00Z", title: "late" },
		{ id: ID, updated_at: "2026-01-04T00:00:00Z", execution_status: "deleting" },
	];
	for (const body of bodies) await reading.keep(body);
	const outcomes = [
		{ change: UpdateChange.STARTED, current: true, changedFields: undefined },
		{ change: UpdateChange.PAUSED, current: true, changedFields: { paths: ["execution_status", "updated_at"] } },
		{
			change: UpdateChange.UPDATED,
			current: false,
			changedFields: { paths: ["execution_status", "title", "updated_at"] },
		},
		{ change: UpdateChange.DELETED, current: true, changedFields: { paths: ["execution_status", "updated_at"] } },
	];
	const expected: ConversationUpdate[] = [];
	const stored = await updates(reading);
	for (const [index, { changedFields, ...outcome }] of outcomes.entries()) {
		const conversation = format.fromJson(record(bodies[index]));
		expected.push(
			create(ConversationUpdateSchema, {
				...outcome,
				origin: UpdateOrigin.POSTED,
				sequence: BigInt(index + 1),
				conversationId: ID,
				receivedAt: fromMicroseconds(stored[index]?.receivedAt ?? 0n),
				// The records have no created_at, so the time of receipt of the first one stands in.
				summary: { ...summarize(conversation), createdAt: fromMicroseconds(stored[0]?.receivedAt ?? 0n) },
				conversation,
				...(changedFields === undefined ? {} : { changedFields }),
			}),
		);
	}
	const views = await Promise.all(stored.map((one) => reading.views.toUpdate(one, { ...SUMMARY, full: true })));
	expect(views).toEqual(expected);
	const summaries = await Promise.all(stored.map((one) => reading.views.toUpdate(one, SUMMARY)));
	expect(summaries).toEqual(expected.map(({ conversation, ...rest }) => rest));
});

test("an update has no changed fields when the record before it was pruned", async () => {
	await using reading = await Reading.open();
	for (const title of ["one", "two", "three"]) await reading.keep({ id: ID, title });
	await reading.pruneTo(2);
	expect(await changed(reading)).toEqual([undefined, ["title"]]);
});

test("a secret is a changed field only if its plaintext changed, although each ciphertext differs", async () => {
	await using reading = await Reading.open([key(1)]);
	await reading.keep(native({ api_key: "one" }));
	await reading.keep({ ...native({ api_key: "one" }), title: "a" });
	await reading.keep({ ...native({ api_key: "two" }), title: "a" });
	expect(await changed(reading)).toEqual([undefined, ["title"], ["agent.agent.llm.api_key"]]);
});

test("without the key a secret is always a changed field, beside the other changed fields", async () => {
	await using reading = await Reading.open([key(1)]);
	await reading.keep(native({ api_key: "one" }));
	await reading.keep({ ...native({ api_key: "one" }), title: "a" });
	const views = new UpdateViews(reading.store, {
		format,
		vault: new RecordVault(format, [key(2)]),
		onUnreadable: ignore,
	});
	expect(await changed(reading, views)).toEqual([undefined, ["title", "agent.agent.llm.api_key"]]);
});

test("secrets are shown in the requested form", async () => {
	await using reading = await Reading.open([key(1)]);
	await reading.keep(native({ api_key: "one" }));
	const [stored] = await updates(reading);
	if (stored === undefined) throw new Error("nothing is stored");
	const shown = async (secrets: "redacted" | "encrypted" | "plaintext") => {
		const { conversation } = await reading.views.toUpdate(stored, { ...FULL, secrets });
		const agent = conversation?.agent?.kind;
		return agent?.case === "agent" ? agent.value.llm?.apiKey : undefined;
	};
	expect(await shown("plaintext")).toBe("one");
	expect(await shown("redacted")).toBe("**********");
	expect(await shown("encrypted")).toMatch(/^enc:v1:/);
});

test("a thousand views of an update in one form are the same object, and all take one read of the store", async () => {
	await using reading = await Reading.open();
	await reading.keep({ id: ID, title: "one" });
	await reading.keep({ id: ID, title: "two" });
	const stored = (await updates(reading))[1];
	if (stored === undefined) throw new Error("nothing is stored");
	let reads = 0;
	const counting: ConstructorParameters<typeof UpdateViews>[0] = {
		get: (id, asOf) => {
			reads += 1;
			return reading.store.get(id, asOf);
		},
	};
	const views = new UpdateViews(counting, { format, vault: new RecordVault(format, []), onUnreadable: ignore });
	const all = await Promise.all(Array.from({ length: 1000 }, () => views.toUpdate({ ...stored }, SUMMARY)));
	expect(new Set(all).size).toBe(1);
	const full = await Promise.all(Array.from({ length: 1000 }, () => views.toUpdate({ ...stored }, FULL)));
	expect(new Set(full).size).toBe(1);
	expect(reads).toBe(1);
});

test("a failed read is not cached", async () => {
	await using reading = await Reading.open();
	await reading.keep({ id: ID, title: "one" });
	await reading.keep({ id: ID, title: "two" });
	const stored = (await updates(reading))[1];
	if (stored === undefined) throw new Error("nothing is stored");
	const failure = new ServiceError("unavailable", "The store cannot be read");
	let fails = true;
	const failing: ConstructorParameters<typeof UpdateViews>[0] = {
		get: (id, asOf) => (fails ? Promise.reject(failure) : reading.store.get(id, asOf)),
	};
	const views = new UpdateViews(failing, { format, vault: new RecordVault(format, []), onUnreadable: ignore });
	await expect(views.toUpdate(stored, SUMMARY)).rejects.toBe(failure);
	await expect(views.toUpdate(stored, FULL)).rejects.toBe(failure);
	fails = false;
	expect((await views.toUpdate(stored, SUMMARY)).changedFields?.paths).toEqual(["title"]);
});

test("changed fields include secrets only with secretPaths, so that other readers cannot test a guess", async () => {
	await using reading = await Reading.open([key(1)]);
	await reading.keep({ ...native({ api_key: "1234" }), title: "a" });
	await reading.keep({ ...native({ api_key: "0000" }), title: "b" });
	await reading.keep({ ...native({ api_key: "0000" }), title: "c" });
	const paths = async (secretPaths: boolean) => {
		const all = [];
		for (const stored of await updates(reading))
			all.push((await reading.views.toUpdate(stored, { ...FULL, secretPaths })).changedFields?.paths);
		return all;
	};
	expect(await paths(false)).toEqual([undefined, ["title"], ["title"]]);
	expect(await paths(true)).toEqual([undefined, ["title", "agent.agent.llm.api_key"], ["title"]]);
});
