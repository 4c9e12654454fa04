import { createSecretKey } from "node:crypto";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { summarize } from "../../../src/record/summary.ts";
import { factsOf } from "../../../src/store/head.ts";
import { record } from "../../support/fixtures.ts";
import { format, Reading, refusal } from "./reading.ts";

const ID = "0190d6a0-0000-7000-8000-000000000001";
const OTHER = "0190d6a0-0000-7000-8000-000000000002";
let reading: Reading;

beforeEach(async () => {
	reading = await Reading.open([createSecretKey(Buffer.alloc(32, 7))]);
});

afterEach(async () => {
	await reading[Symbol.asyncDispose]();
});

/** Returns the title and the sequence of the record that is found. */
async function titleAt(sequence: bigint | undefined, id = ID): Promise<[string | undefined, bigint]> {
	const found = await reading.getDecoded({ id, sequence, secrets: "redacted" });
	return [found.conversation.title, found.sequence];
}

test("the current record is found by any form of its id", async () => {
	await reading.keep({ id: ID, title: "one" });
	await reading.keep({ id: ID, title: "two" });
	for (const id of [ID, ID.toUpperCase(), ID.replaceAll("-", ""), `{${ID}}`, `urn:uuid:${ID}`])
		expect(await titleAt(undefined, id)).toEqual(["two", 2n]);
});

test("the record as of a sequence is the one current then, also for sequences of other conversations", async () => {
	await reading.keep({ id: OTHER, title: "other" });
	await reading.keep({ id: ID, title: "one", updated_at: "2026-01-02T00:00:00Z" });
	await reading.keep({ id: ID, title: "late", updated_at: "2026-01-01T00:00:00Z" });
	await reading.keep({ id: ID, title: "two", updated_at: "2026-01-03T00:00:00Z" });
	expect(await titleAt(2n)).toEqual(["one", 2n]);
	expect(await titleAt(3n)).toEqual(["one", 2n]);
	expect(await titleAt(4n)).toEqual(["two", 4n]);
	expect(await titleAt(99n)).toEqual(["two", 4n]);
	expect(await titleAt(4n, OTHER)).toEqual(["other", 1n]);
});

test("a record has its time of receipt, and secrets in the requested form", async () => {
	const before = BigInt(Date.now()) * 1000n;
	await reading.keep({ id: ID, agent: { kind: "Agent", llm: { model: "m", api_key: "sk-1" } } });
	const after = BigInt(Date.now()) * 1000n;
	const apiKey = async (secrets: "redacted" | "encrypted" | "plaintext") => {
		const found = await reading.getDecoded({ id: ID, sequence: undefined, secrets });
		expect(found.receivedAt >= before && found.receivedAt <= after).toBe(true);
		const { agent } = format.toJson(found.conversation);
		return agent;
	};
	expect(await apiKey("redacted")).toMatchObject({ llm: { api_key: "**********" } });
	expect(await apiKey("plaintext")).toMatchObject({ llm: { api_key: "sk-1" } });
	expect(await apiKey("encrypted")).toMatchObject({ llm: { api_key: expect.stringMatching(/^enc:v1:/) } });
});

test("an unknown conversation, or one that did not exist at the sequence, is not_found", async () => {
	await reading.keep({ id: OTHER });
	await reading.keep({ id: ID });
	const get = (id: string, sequence?: bigint) => refusal(reading.getDecoded({ id, sequence, secrets: "redacted" }));
	const unknown = "0190d6a0-0000-7000-8000-000000000003";
	expect(await get(unknown)).toEqual({ kind: "not_found", message: "There is no such conversation" });
	expect(await get(unknown, 1n)).toEqual({ kind: "not_found", message: "There is no such conversation" });
	expect(await get(ID, 1n)).toEqual({
		kind: "not_found",
		message: "There was no such conversation at that sequence",
	});
});

test("a sequence at which the current record has been pruned is out_of_range", async () => {
	for (const title of ["one", "two", "three", "four"]) await reading.keep({ id: ID, title });
	await reading.pruneTo(2);
	const message =
		"The update that was current at that sequence has been pruned; the oldest later update that is kept has the sequence 3";
	for (const sequence of [1n, 2n])
		expect(await refusal(reading.getDecoded({ id: ID, sequence, secrets: "redacted" }))).toEqual({
			kind: "out_of_range",
			message,
		});
	expect(await titleAt(3n)).toEqual(["three", 3n]);
});

test("an invalid request is refused with the name of the field", async () => {
	const get = (id: string, sequence?: bigint) => refusal(reading.getDecoded({ id, sequence, secrets: "redacted" }));
	expect(await get("")).toEqual({ kind: "invalid_argument", message: "id is not a UUID" });
	expect(await get("x")).toEqual({ kind: "invalid_argument", message: "id is not a UUID" });
	expect(await get(ID, 0n)).toEqual({ kind: "invalid_argument", message: "sequence must be at least 1" });
	expect(await get(ID, -1n)).toEqual({ kind: "invalid_argument", message: "sequence must be at least 1" });
});

test("an unreadable record fails with data_loss, and is reported", async () => {
	await reading.keep({ id: ID });
	reading.damage(1n);
	const request = { id: ID, sequence: undefined, secrets: "redacted" } as const;
	const refused = { kind: "data_loss", message: "The stored record cannot be read" };
	expect(await refusal(reading.get.getEncoded(request))).toEqual(refused);
	expect(reading.unreadable).toEqual([{ conversationId: ID, sequence: 1n }]);
});

test("a member that an older schema did not name has its place in JSON, both encoded and decoded", async () => {
	const json = record({ id: ID, agent: { kind: "Agent", llm: { model: "m" } } });
	const older = format.fromJson(json);
	older.unnamedMembers = { "/agent/llm/seed": create(ValueSchema, { kind: { case: "numberValue", value: 7 } }) };
	const { sequence } = await reading.store.append({
		conversationId: ID,
		receivedAt: 1n,
		record: reading.vault.protect(older),
		summary: toBinary(ConversationSummarySchema, summarize(older)),
		facts: factsOf(summarize(older)),
		leaf: undefined,
	});
	const request = { id: ID, sequence, secrets: "redacted" } as const;
	const encoded = fromBinary(ConversationInfoSchema, (await reading.get.getEncoded(request)).conversation);
	for (const conversation of [encoded, (await reading.getDecoded(request)).conversation])
		expect(format.toJson(conversation)).toMatchObject({ agent: { llm: { seed: 7 } } });
});
