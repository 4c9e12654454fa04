import { createSecretKey } from "node:crypto";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { ConversationUpdateSchema } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { GetConversation } from "../../../src/conversations/read/get.ts";
import { ListConversations } from "../../../src/conversations/read/list.ts";
import { changedPaths, type LargeRecords, recordJson } from "../../../src/conversations/read/records.ts";
import { UpdateViews } from "../../../src/conversations/read/updates.ts";
import { format, Reading } from "./reading.ts";

const ID = "0190d6a0-0000-7000-8000-000000000001";
const LIST = { pageSize: 0, pageToken: "", full: true, secrets: "plaintext" } as const;
const VIEWS = [
	{ full: false, secrets: "redacted", secretPaths: true },
	{ full: true, secrets: "plaintext", secretPaths: true },
	{ full: true, secrets: "redacted", secretPaths: false },
] as const;

/** Opens all records of at least one byte as the thread does, and detaches the bytes that it gets. */
function largeRecords({ vault }: Reading) {
	const calls: string[] = [];
	const taking = <Result>(name: string, work: () => Result, ...bytes: (Uint8Array | undefined)[]): Result => {
		calls.push(name);
		const result = work();
		for (const one of bytes) if (one?.buffer instanceof ArrayBuffer) one.buffer.transfer(0);
		return result;
	};
	const large: LargeRecords = {
		minLargeBytes: 1,
		openEncoded: async (record, form) =>
			taking("openEncoded", () => new Uint8Array(vault.openEncoded(record.bytes, record, form)), record.bytes),
		openJson: async (record, form) =>
			taking("openJson", () => recordJson({ format, vault }, record, form), record.bytes),
		changedPaths: async (records) =>
			taking("changedPaths", () => changedPaths(vault, records), records.before, records.after),
	};
	return { large, calls };
}

test("what another thread opens equals what this thread opens, in lists and in updates", async () => {
	await using reading = await Reading.open([createSecretKey(Buffer.alloc(32, 7))]);
	const llm = { model: "m", api_key: "sk-1" };
	await reading.keep({ id: ID, title: "one", agent: { kind: "Agent", llm } });
	await reading.keep({ id: ID, title: "two", agent: { kind: "Agent", llm: { ...llm, api_key: "sk-2" } } });
	const { large, calls } = largeRecords(reading);
	const { store, vault } = reading;
	const ignore = () => undefined;
	const list = new ListConversations(store, { format, vault, onUnreadable: ignore, large });
	const views = new UpdateViews(store, { format, vault, onUnreadable: ignore, large });
	const get = new GetConversation(store, { format, vault, onUnreadable: ignore, large });

	const [here] = (await reading.list.list(LIST)).conversations;
	const [there] = (await list.list(LIST)).conversations;
	if (!(there?.conversation instanceof Uint8Array)) throw new Error("the record was opened by this thread");
	expect({ ...there, conversation: fromBinary(ConversationInfoSchema, there.conversation) }).toEqual(here);
	expect(await list.listJson(LIST)).toEqual(await reading.list.listJson(LIST));
	expect(await get.getJson({ id: ID, sequence: 1n, secrets: "redacted" })).toEqual(
		await reading.get.getJson({ id: ID, sequence: 1n, secrets: "redacted" }),
	);

	const stored = await store.updates.list({ after: 0n, limit: 10, maxBytes: 2 ** 20, withRecords: true });
	for (const view of VIEWS)
		for (const one of stored) {
			const whole = toBinary(ConversationUpdateSchema, await reading.views.toUpdate(one, view));
			// Twice, because the bytes of a stored update are shared and must stay as they are.
			for (const opened of [views, new UpdateViews(store, { format, vault, onUnreadable: ignore, large })]) {
				const update = toBinary(ConversationUpdateSchema, await opened.toUpdate(one, view));
				expect(fromBinary(ConversationUpdateSchema, update)).toEqual(fromBinary(ConversationUpdateSchema, whole));
			}
		}
	const [, second = raise()] = stored;
	expect((await views.toUpdate(second, VIEWS[0])).changedFields?.paths).toEqual(["title", "agent.agent.llm.api_key"]);
	expect(new Set(calls)).toEqual(new Set(["openEncoded", "openJson", "changedPaths"]));
});

function raise(): never {
	throw new Error("there is no second update");
}
