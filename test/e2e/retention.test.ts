import type { JsonObject } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { ConversationView } from "../../gen/conversations/v1/conversation_service_pb.js";
import { ingestClient, postWebhook, readClient } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { BEGINNING, updatesUntilCaughtUp, type WatchRequest, watch } from "../support/watching.ts";

const KEEP_ONE = { RETENTION_UPDATES_PER_CONVERSATION: "1" };

async function ingest(service: TestService, json: JsonObject): Promise<bigint> {
	return (await ingestClient(service, "gRPC", KEY).ingestConversation(ingestRequest(json))).sequence;
}

/** Returns the sequences of the listed updates, or the code with which the list is refused. */
async function listed(service: TestService, conversationId: string, afterSequence: bigint): Promise<bigint[] | Code> {
	const request = { conversationId, afterSequence, pageSize: 1000 };
	return await outcome(async () => (await readClient(service, "gRPC", KEY).listConversationUpdates(request)).updates);
}

async function watched(service: TestService, request: WatchRequest): Promise<bigint[] | Code> {
	return await outcome(() => updatesUntilCaughtUp(service, KEY, request));
}

async function outcome(read: () => Promise<readonly { sequence: bigint }[]>): Promise<bigint[] | Code> {
	try {
		return (await read()).map(({ sequence }) => sequence);
	} catch (error) {
		return ConnectError.from(error).code;
	}
}

/** Waits until no more than one update of a conversation is left. */
async function pruned(service: TestService, id: string): Promise<void> {
	await expect.poll(() => listed(service, id, 0n)).toHaveLength(1);
}

describe("a pruned update", () => {
	test("makes lists and watches from before it OUT_OF_RANGE only if they would have included it", async () => {
		await using writer = await startTestService();
		const [a, b, c] = [record(), record(), record()];
		const sequences: bigint[] = [];
		for (const json of [a, c, b, a, c, a])
			sequences.push(await ingest(writer, { ...json, title: `${sequences.length}` }));
		expect(sequences).toEqual([1n, 2n, 3n, 4n, 5n, 6n]);
		await using service = await writer.restart(KEEP_ONE);
		await pruned(service, String(a.id));
		await pruned(service, String(c.id));

		const { OutOfRange } = Code;
		for (const [who, id, after, expected] of [
			["b", b.id, 1n, [3n]],
			["b", b.id, 2n, [3n]],
			["b", b.id, 4n, []],
			["c", c.id, 1n, OutOfRange],
			["c", c.id, 2n, [5n]],
			["c", c.id, 4n, [5n]],
			["a", a.id, 1n, OutOfRange],
			["a", a.id, 3n, OutOfRange],
			["a", a.id, 4n, [6n]],
			["all", "", 1n, OutOfRange],
			["all", "", 3n, OutOfRange],
			["all", "", 4n, [5n, 6n]],
			["b", b.id, 0n, [3n]],
			["all", "", 0n, [3n, 5n, 6n]],
		] as const) {
			const conversationId = String(id);
			const start = { case: "afterSequence", value: after } as const;
			expect([who, after, await watched(service, { start, conversationId })]).toEqual([who, after, expected]);
			expect([who, after, await listed(service, conversationId, after)]).toEqual([who, after, expected]);
		}
	});

	test("that a watch from the beginning has not delivered yet ends the watch with OUT_OF_RANGE", async () => {
		const UPDATES = 3000;
		await using writer = await startTestService();
		const json = record({ agent_state: { filler: "x".repeat(8000) } });
		for (let sent = 0; sent < UPDATES; sent += 100)
			await Promise.all(
				Array.from({ length: 100 }, async (_, index) => {
					const response = await postWebhook(writer, KEY, JSON.stringify({ ...json, title: `${sent + index}` }));
					expect(response.status).toBe(200);
				}),
			);
		await using service = await writer.restart(KEEP_ONE);
		const messages = watch(service, KEY, { start: BEGINNING, view: ConversationView.FULL })[Symbol.asyncIterator]();
		const delivered: bigint[] = [];
		const failure = await (async () => {
			for (;;) {
				// On a busy machine the watch may fail before it delivers anything.
				const { value, done } = await messages.next();
				if (done === true || value.content.case === "heartbeat") return undefined;
				delivered.push(value.sequence);
				// Reads nothing until the updates that were not delivered yet are pruned.
				if (delivered.length === 1) await pruned(service, String(json.id));
			}
		})().catch((error: unknown) => error);
		expect(delivered.length).toBeLessThan(UPDATES);
		expect(delivered).toEqual(delivered.map((_, index) => (delivered[0] ?? 0n) + BigInt(index)));
		expect(ConnectError.from(failure).code).toBe(Code.OutOfRange);
	});
});
