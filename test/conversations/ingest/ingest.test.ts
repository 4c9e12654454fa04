import { randomUUID } from "node:crypto";
import { toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { IngestConversationRequestSchema } from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { eventsRequest } from "../../support/event-batches.ts";
import { record } from "../../support/fixtures.ts";
import { ingestRequest } from "../../support/record-message.ts";
import { LiveService, POSTER } from "./live-service.ts";

/** Makes a call and cancels it at once. */
function cancelled(call: (signal: AbortSignal) => Promise<unknown>): Promise<unknown> {
	const controller = new AbortController();
	const outcome = call(controller.signal);
	controller.abort();
	return outcome;
}

test("a request that is cancelled before it was checked stores nothing, and can be sent again", async () => {
	await using live = await LiveService.open();
	const refusal = { kind: "unavailable", message: "the sender no longer waits for the response" };
	const waiting = new AbortController().signal;
	const id = randomUUID();
	const request = toBinary(
		IngestConversationRequestSchema,
		ingestRequest(record({ id, updated_at: "2026-01-01T00:00:00Z" })),
	);
	await expect(cancelled((signal) => live.ingest.request(request, POSTER, signal))).rejects.toMatchObject(refusal);
	expect(await live.record(id)).toBeUndefined();
	const json = Buffer.from(JSON.stringify(record({ id, updated_at: "2026-01-01T00:00:00Z" })));
	await expect(cancelled((signal) => live.ingest.json(json, POSTER, signal))).rejects.toMatchObject(refusal);
	expect(await live.record(id)).toBeUndefined();
	expect(await live.ingest.request(request, POSTER, waiting)).toMatchObject({ sequence: 1n, duplicate: false });

	// The second batch finds a record that is held in memory.
	for (const [index, title] of ["first", "second"].entries()) {
		const state = { kind: "ConversationStateUpdateEvent", key: "title", value: title };
		const event = { id: title, timestamp: `2026-01-01T00:00:0${index + 1}`, source: "environment", ...state };
		const batch = eventsRequest(id, [event]);
		await expect(cancelled((signal) => live.events.request(batch, POSTER, signal))).rejects.toMatchObject(refusal);
		const array = Buffer.from(JSON.stringify([event]));
		await expect(cancelled((signal) => live.events.json(id, array, POSTER, signal))).rejects.toMatchObject(refusal);
		expect((await live.record(id))?.title).not.toBe(title);
		expect(await live.events.request(batch, POSTER, waiting)).toEqual({
			stored: 1,
			updateSequence: BigInt(index) + 2n,
		});
		expect((await live.record(id))?.title).toBe(title);
	}
});
