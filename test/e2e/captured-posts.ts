import { randomBytes } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { expect } from "vitest";
import { type Endpoints, getText, postWebhook } from "../support/clients.ts";
import { postEvents } from "../support/event-clients.ts";
import { type CapturedPost, capturedSequences, object } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";

/** With a key, secrets come back as they were sent. */
export const ENV = { ENCRYPTION_KEY: randomBytes(32).toString("base64") };

/** Expects the response to an accepted post. */
async function expectSuccess(response: Response): Promise<void> {
	expect({ status: response.status, json: await response.json() }).toEqual({ status: 200, json: { success: true } });
}

/** Sends a captured post, which must be accepted. */
export async function send(to: Endpoints, conversationId: string, { webhook, body }: CapturedPost): Promise<void> {
	await expectSuccess(
		webhook === "events" ? await postEvents(to, KEY, conversationId, body) : await postWebhook(to, KEY, body),
	);
}

/** Returns a record with its secrets. */
export async function read(from: Endpoints, id: string): Promise<JsonObject> {
	return object(JSON.parse(await getText(from, KEY, id, "secrets=plaintext")));
}

/** Sequences with a `deleting` record, which has the newest value of every member. */
export const sequences = capturedSequences().filter(({ posts }) => posts.some(isDeleting));

/** Returns whether a post is a `deleting` record. */
export function isDeleting({ webhook, body }: CapturedPost): boolean {
	return webhook === "conversations" && object(JSON.parse(body)).execution_status === "deleting";
}
