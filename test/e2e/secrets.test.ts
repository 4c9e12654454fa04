import { randomBytes, randomUUID } from "node:crypto";
import { type DescMessage, type JsonObject, type MessageShape, toJsonString } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { expect, onTestFinished, test, vi } from "vitest";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import {
	ConversationUpdateSchema,
	ConversationView,
	GetConversationResponseSchema,
	ListConversationsResponseSchema,
	ListConversationUpdatesResponseSchema,
	SecretsMode,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { SECRET_MEMBERS } from "../support/canaries.ts";
import { badRequest, getText, ingestClient, postWebhook, readClient } from "../support/clients.ts";
import { getEvents, postEvents } from "../support/event-clients.ts";
import { record } from "../support/fixtures.ts";
import { OtlpReceiver } from "../support/otlp-receiver.ts";
import { callRaw, RAW_FORMS } from "../support/raw-rpc.ts";
import { httpAddress, responseTo } from "../support/raw-socket.ts";
import { ingestRequest } from "../support/record-message.ts";
import { scrape } from "../support/scrape.ts";
import { startTestService, type TestService } from "../support/service.ts";
import { BEGINNING, updatesUntilCaughtUp } from "../support/watching.ts";

/** Begins every secret of this test, and stands nowhere else. */
const CANARY = "canary-";
const SECRET = `${CANARY}as-a-value`;
const [KEY, READER] = [`${CANARY}key-with-every-scope`, `${CANARY}key-without-secrets`];
const ACCESS_KEYS = `test:${KEY}:ingest+read+secrets+metrics,reader:${READER}:ingest+read`;
const FULL = { view: ConversationView.FULL } as const;
const { ingestConversation } = ConversationIngestService.method;

/** A record for each place of a secret. The tests of record/secrets protect a secret at every place there is. */
const records = Object.values(SECRET_MEMBERS).map((members) => record(members(SECRET)));

/** Returns the surroundings of the secrets in a text. */
function leaked(text: string | Buffer): string[] {
	return text.toString("latin1").match(/.{0,80}canary-.{0,20}/g) ?? [];
}

/** An event that reports the record, and one with the record among its own members. */
function eventsOf({ id: _, created_at: __, updated_at: ___, ...members }: JsonObject): JsonObject[] {
	const envelope = { timestamp: "2027-01-31T08:00:00", source: "agent" };
	const state = { kind: "ConversationStateUpdateEvent", key: "full_state", value: members };
	return [
		{ ...envelope, id: randomUUID(), ...state },
		{ ...envelope, id: randomUUID(), kind: "ActionEvent", action: { mcpServers: { s: { env: members } } } },
	];
}

/** Posts all records and their events. Returns the refusals of those that break rules elsewhere. */
async function postAll(service: TestService): Promise<string[]> {
	const refusals: string[] = [];
	const client = ingestClient(service, "gRPC", READER);
	for (const json of records) {
		expect((await postWebhook(service, READER, JSON.stringify(json))).status).toBe(200);
		// A second record of the conversation, so that an update has changed fields.
		await client.ingestConversation(ingestRequest({ ...json, max_iterations: 7 }));
		const broken = { ...json, id: "no-uuid", max_iterations: 0, tags: { UPPER: "x" } };
		refusals.push(await (await postWebhook(service, READER, JSON.stringify(broken))).text());
		const request = ingestRequest(json);
		if (request.conversation !== undefined) request.conversation.id = "no-uuid";
		const failure = await client.ingestConversation(request).then(() => undefined, ConnectError.from);
		refusals.push(`${failure?.message} ${JSON.stringify(failure && badRequest(failure)?.fieldViolations)}`);
		const events = eventsOf(json);
		expect((await postEvents(service, READER, String(json.id), JSON.stringify(events))).status).toBe(200);
		const invalid = JSON.stringify([...events, { ...events[1], timestamp: "never" }]);
		refusals.push(await (await postEvents(service, READER, String(json.id), invalid)).text());
	}
	return refusals;
}

/** Returns everything that a key without the secrets scope can read about the stored records. */
async function readWithoutScope(service: TestService): Promise<string[]> {
	const client = readClient(service, "gRPC", READER);
	const text = <Desc extends DescMessage>(desc: Desc, message: MessageShape<Desc>) => toJsonString(desc, message);
	const texts: string[] = [];
	for (const { id } of records) {
		for (const secrets of ["", "secrets=encrypted"]) {
			texts.push(await getText(service, READER, id, secrets));
			texts.push(JSON.stringify(await getEvents(service, READER, String(id), secrets)));
		}
		for (const secrets of [SecretsMode.REDACTED, SecretsMode.ENCRYPTED])
			texts.push(text(GetConversationResponseSchema, await client.getConversation({ id: String(id), secrets })));
	}
	for (const request of [{ pageSize: 1000 }, { ...FULL, pageSize: 1000, secrets: SecretsMode.ENCRYPTED }]) {
		texts.push(text(ListConversationsResponseSchema, await client.listConversations(request)));
		texts.push(text(ListConversationUpdatesResponseSchema, await client.listConversationUpdates(request)));
	}
	const watched = await updatesUntilCaughtUp(service, READER, { start: BEGINNING, ...FULL });
	return [...texts, ...watched.map((update) => text(ConversationUpdateSchema, update))];
}

/** Sends a secret in the other places where a request can have one, with a right and a wrong key. */
async function sendElsewhere(service: TestService): Promise<void> {
	const json = JSON.stringify(record());
	for (const key of [READER, `${READER}-that-is-wrong`]) {
		for (const body of [`{"title":"${SECRET}`, SECRET, `["${SECRET}"]`, `{"id":"${SECRET}"}`])
			expect((await postWebhook(service, key, body)).status).toBeGreaterThanOrEqual(400);
		for (const name of [
			"Content-Type",
			"Content-Encoding",
			"Cookie",
			"X-Session-API-Key",
			"Authorization",
			"User-Agent",
		])
			expect([200, 401, 415]).toContain((await postWebhook(service, key, json, { [name]: `text/${SECRET}` })).status);
		const events = JSON.stringify([{ id: SECRET, timestamp: SECRET, source: SECRET, kind: SECRET, [SECRET]: SECRET }]);
		for (const id of [randomUUID(), SECRET])
			expect((await postEvents(service, key, id, events)).status).toBeGreaterThanOrEqual(400);
		for (const path of [`conversations?page_token=${SECRET}`, `conversations/${SECRET}`]) {
			const answer = await fetch(`${service.http}/api/v1/${path}`, { headers: { "X-Access-Token": key } });
			expect(answer.status).toBeGreaterThanOrEqual(400);
		}
		for (const form of RAW_FORMS)
			for (const message of [SECRET, `{"conversation":{"title":"${SECRET}"}}`, `{"${SECRET}":1}`])
				expect((await callRaw(service, form, ingestConversation, message, key)).code).toBeGreaterThan(0);
	}
	for (const bytes of [
		`${SECRET} / HTTP/1.1\r\nHost: x\r\n\r\n`,
		`GET / HTTP/1.1\r\nHost: x\r\n${SECRET} : ${SECRET}\r\n\r\n`,
		`POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${SECRET}\r\n\r\n`,
		`PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\u0000\u0000\u0000${SECRET}`,
	])
		for (const address of [httpAddress(service), service.grpc]) await responseTo(address, bytes);
}

test.each([
	["without an encryption key", ""],
	["with an encryption key", randomBytes(32).toString("base64")],
])(
	"%s, no secret reaches the disk, the log, an error, telemetry, or a read without the secrets scope",
	async (_, ENCRYPTION_KEY) => {
		await using receiver = await OtlpReceiver.start();
		// The exporters read it from the environment of the process.
		vi.stubEnv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url);
		onTestFinished(() => {
			vi.unstubAllEnvs();
		});
		const env = { ENCRYPTION_KEY, ACCESS_KEYS, OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, LOG_LEVEL: "trace" };
		await using service = await startTestService(env);
		const onDisk = () => [...service.folder.contents().values()].flatMap(leaked);
		const refusals = await postAll(service);
		expect(refusals).toHaveLength(3 * records.length);
		expect(refusals.flatMap(leaked)).toEqual([]);
		expect((await readWithoutScope(service)).flatMap(leaked)).toEqual([]);
		expect(onDisk()).toEqual([]);
		await sendElsewhere(service);
		expect(leaked((await scrape(service, KEY)).text)).toEqual([]);
		const [{ id } = {}] = records;
		const shown = leaked(await getText(service, KEY, id, "secrets=plaintext"));
		expect(shown).toHaveLength(ENCRYPTION_KEY === "" ? 0 : 1);
		await service.stop();
		expect(receiver.spans.length).toBeGreaterThan(records.length);
		expect(receiver.metrics.size).toBeGreaterThan(0);
		expect(receiver.bodies.flatMap(leaked)).toEqual([]);
		for (const event of ["request_ended", "request_refused", "connection_failed", "stopped"])
			expect(service.log()).toContain(`"event":"${event}"`);
		expect(leaked(service.log())).toEqual([]);
		expect(service.log()).not.toContain(Buffer.from(SECRET).toString("base64"));
		if (ENCRYPTION_KEY !== "") expect(service.log()).not.toContain(ENCRYPTION_KEY);
	},
);
