import { randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { type Endpoints, postWebhook } from "../support/clients.ts";
import { postEvents } from "../support/event-clients.ts";
import { KEY } from "../support/service.ts";

/** `updated_at` of the records whose events are posted. The events are later. */
export const POSTED_AT = "2026-11-22T08:00:00.000000Z";
const START = Date.parse(POSTED_AT);

/** An HTTP response other than success. The message is its status. */
export class Refused extends Error {
	override readonly name = "Refused";
}

/** Posts a record to the webhook. */
export async function recordByWebhook(service: Endpoints, json: JsonObject): Promise<undefined> {
	await expectSuccess(await postWebhook(service, KEY, JSON.stringify(json)));
}

/** Posts a batch of events to the webhook. */
export async function eventsByWebhook(service: Endpoints, id: string, batch: readonly JsonObject[]): Promise<void> {
	await expectSuccess(await postEvents(service, KEY, id, JSON.stringify(batch)));
}

async function expectSuccess(response: Response): Promise<void> {
	await response.text();
	if (response.status !== 200) throw new Refused(String(response.status));
}

/** Returns a text of up to 5,000 characters, or of 100,000 for every tenth number. */
export function filler(number: number): string {
	return "x".repeat(number % 10 === 9 ? 100_000 : (number * 977) % 5000);
}

/** Returns a batch of two events: an agent's action, and a state update of one member of the record. */
export function batchOf(number: number, size: number): JsonObject[] {
	const timestamp = (part: number) => new Date(START + number * 1000 + part).toISOString().slice(0, -1);
	return [
		{
			id: randomUUID(),
			timestamp: timestamp(1),
			source: "agent",
			kind: "ActionEvent",
			number,
			filler: filler(number + size),
		},
		{
			id: randomUUID(),
			timestamp: timestamp(2),
			source: "environment",
			kind: "ConversationStateUpdateEvent",
			key: "max_iterations",
			value: number + 1,
		},
	];
}
