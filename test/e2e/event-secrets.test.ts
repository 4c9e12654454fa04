import { randomBytes, randomUUID } from "node:crypto";
import { type JsonObject, toJsonString } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { ConversationEventEntrySchema } from "../../gen/conversations/v1/conversation_event_service_pb.js";
import {
	ConversationView,
	ListConversationUpdatesResponseSchema,
	SecretsMode,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { secretPlaces } from "../record/secrets/secret-places.ts";
import { canariesIn, newCanary, SECRET_MEMBERS } from "../support/canaries.ts";
import { getText, postWebhook, readClient } from "../support/clients.ts";
import { completed } from "../support/completed.ts";
import {
	allEvents,
	eventIngestClient,
	eventJson,
	getEvents,
	ingestEventsRequest,
	postEvents,
} from "../support/event-clients.ts";
import { object, record } from "../support/fixtures.ts";
import { recordJson } from "../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { urlPlaces } from "../support/url-places.ts";

const { plan } = new RecordFormat();
const READER = "key-without-secrets";
const ACCESS_KEYS = `test:${KEY}:ingest+read+secrets,reader:${READER}:ingest+read`;

/** Members of a record with a secret of its own for each place that can hold one. */
const states = [
	...secretPlaces().map(({ name, plant }) => {
		const canary = newCanary();
		return { name, canary, members: object(completed(plan, recordJson(plant(canary)))) };
	}),
	...Object.entries(SECRET_MEMBERS).map(([name, members]) => {
		const canary = newCanary();
		return { name, canary, members: members(canary) };
	}),
	...urlPlaces(plan).map(({ name, isName, plant }) => {
		const canary = newCanary();
		return { name: `URL in ${name}`, canary, members: plant(canary), isName };
	}),
];

/** Payloads of other events with a secret where the rule for free-form JSON finds it. */
const payloads: readonly { readonly name: string; readonly canary: string; readonly members: JsonObject }[] = [
	(secret: string) => ({ action: { kind: "McpAction", data: { api_key: secret } } }),
	(secret: string) => ({ observation: { env: { ANY_TOKEN: secret } } }),
	(secret: string) => ({ text: `git clone https://u:${secret}@host/` }),
	(secret: string) => ({ headers: { Authorization: `Bearer ${secret}` } }),
].map((plant, index) => {
	const canary = newCanary();
	return { name: `payload ${index}`, canary, members: plant(canary) };
});

const planted = [...states, ...payloads];

/** One batch for each secret: a full state and a state update for each member, or an event with the payload. */
const batches = [
	...states.map(({ members }) => {
		const { id: _, created_at: __, updated_at: ___, ...value } = members;
		const updates = Object.entries(value).map(([key, member]) => ({ key, value: member }));
		return [{ key: "full_state", value }, ...updates].map((update) => event("ConversationStateUpdateEvent", update));
	}),
	...payloads.map(({ members }) => [event("ActionEvent", members)]),
];

function event(kind: string, members: JsonObject): JsonObject {
	return { id: randomUUID(), timestamp: "2027-01-31T08:00:00", source: "agent", kind, ...members };
}

function leaked(text: string | Buffer): string[] {
	const found = canariesIn(text);
	return planted.filter(({ canary }) => found.has(canary)).map(({ name }) => name);
}

function leakedOnDisk(service: TestService): string[] {
	return [...service.folder.contents().values()].flatMap(leaked);
}

describe.each([
	["without ENCRYPTION_KEY", {}],
	["with ENCRYPTION_KEY", { ENCRYPTION_KEY: randomBytes(32).toString("base64") }],
])("%s", (_, env) => {
	test("no secret of an event reaches the disk, the log, an error or a read without the scope for secrets", async () => {
		await using service = await startTestService({ ...env, ACCESS_KEYS, LOG_LEVEL: "trace" });
		const sender = eventIngestClient(service, READER);
		const sent = batches.map((batch) => ({ id: randomUUID(), batch }));
		for (const [index, { id, batch }] of sent.entries()) {
			// Posts a record first, so that the state updates are applied to it.
			expect((await postWebhook(service, READER, JSON.stringify(record({ id })))).status).toBe(200);
			if (index % 2 === 0) expect((await postEvents(service, READER, id, JSON.stringify(batch))).status).toBe(200);
			else await sender.ingestConversationEvents(ingestEventsRequest(id, batch));
			const broken = [...batch, event("K", { timestamp: "never" })];
			const refused = await postEvents(service, READER, id, JSON.stringify(broken));
			expect(refused.status).toBe(422);
			expect(leaked(await refused.text())).toEqual([]);
		}
		const reader = readClient(service, "gRPC", READER);
		for (const secrets of [SecretsMode.REDACTED, SecretsMode.ENCRYPTED]) {
			const entries = await allEvents(service, READER, { secrets });
			expect(entries.length).toBe(batches.flat().length);
			for (const entry of entries) expect(leaked(toJsonString(ConversationEventEntrySchema, entry))).toEqual([]);
			const page = await reader.listConversationUpdates({ view: ConversationView.FULL, pageSize: 1000, secrets });
			expect(leaked(toJsonString(ListConversationUpdatesResponseSchema, page))).toEqual([]);
		}
		for (const { id } of sent) {
			expect(leaked(await getText(service, READER, id))).toEqual([]);
			expect(leaked(JSON.stringify(await getEvents(service, READER, id, "secrets=encrypted")))).toEqual([]);
		}
		expect(leakedOnDisk(service)).toEqual([]);

		// With ENCRYPTION_KEY, a key with the scope secrets reads them in plain text.
		if ("ENCRYPTION_KEY" in env)
			for (const [index, { id, batch }] of sent.entries()) {
				// A password in a name is removed, not encrypted.
				const state = states[index];
				if (state !== undefined && "isName" in state && state.isName) continue;
				const entries = await allEvents(service, KEY, { conversationId: id, secrets: SecretsMode.PLAINTEXT });
				expect(entries.map((entry) => eventJson(entry.event))).toEqual(batch);
			}
		await service.stop();
		expect(leakedOnDisk(service)).toEqual([]);
		expect(leaked(service.log())).toEqual([]);
		// `leaked` finds secrets that are there, also one in another.
		const [first, second] = planted;
		const text = `${first?.canary.slice(0, -2)}${second?.canary}`;
		expect([leaked(`x${first?.canary}${second?.canary}`), leaked(text)]).toEqual([
			[first?.name, second?.name],
			[second?.name],
		]);
	});
});
