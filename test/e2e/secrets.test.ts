import { randomBytes, randomInt, randomUUID } from "node:crypto";
import { type DescMessage, type JsonObject, type MessageShape, toJsonString } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import {
	ConversationUpdateSchema,
	ConversationView,
	GetConversationResponseSchema,
	ListConversationsResponseSchema,
	ListConversationUpdatesResponseSchema,
	SecretsMode,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { secretPlaces } from "../record/secrets/secret-places.ts";
import { canariesIn, newCanary, SECRET_MEMBERS } from "../support/canaries.ts";
import { badRequest, getText, ingestClient, postWebhook, readClient } from "../support/clients.ts";
import { completed } from "../support/completed.ts";
import { getEvents, postEvents } from "../support/event-clients.ts";
import { object, record } from "../support/fixtures.ts";
import { OtlpReceiver } from "../support/otlp-receiver.ts";
import { ingestRequest, recordJson } from "../support/record-message.ts";
import { scrape } from "../support/scrape.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { urlPlaces } from "../support/url-places.ts";
import { BEGINNING, updatesUntilCaughtUp } from "../support/watching.ts";

const { plan } = new RecordFormat();
const READER = "key-without-secrets";
const ACCESS_KEYS = `test:${KEY}:ingest+read+secrets+metrics,reader:${READER}:ingest+read`;
const FULL = { view: ConversationView.FULL } as const;

/** One of ten, because the tests of record/secrets protect a secret at every place. */
const sampled = <Place>(places: readonly Place[]) => places.filter((_, index) => index % 10 === 0);

/** Records for places that can hold a secret, each with a different secret. */
const canaries = [
	...sampled(secretPlaces()).map(({ name, plant }) => {
		const canary = newCanary();
		const json = object(completed(plan, recordJson(plant(canary))));
		return { name, canary, json: { ...json, id: randomUUID() } };
	}),
	...Object.entries(SECRET_MEMBERS).map(([name, members]) => {
		const canary = newCanary();
		return { name, canary, json: record(members(canary)) };
	}),
	...sampled(urlPlaces(plan)).map(({ name, plant }) => {
		const canary = newCanary();
		return { name: `URL in ${name}`, canary, json: plant(canary) };
	}),
];

/** A number in MCP auth, which is a secret too. `pinForms` are the bytes to search for: its digits, and a double. */
const pin = randomInt(10 ** 11, 10 ** 12);
const pinRecord = record({
	agent: { kind: "Agent", llm: { model: "m" }, mcp_config: { s: { url: "u", auth: { strategy: "totp", pin } } } },
});
const pinForms = [Buffer.from(String(pin)), Buffer.alloc(8)];
pinForms[1]?.writeDoubleLE(pin);

/** Returns the names of the places whose secrets a text contains. */
function leaked(text: string | Buffer): string[] {
	const bytes = Buffer.isBuffer(text) ? text : Buffer.from(text);
	const found = canariesIn(bytes);
	const names = canaries.filter(({ canary }) => found.has(canary)).map(({ name }) => name);
	return pinForms.some((form) => bytes.includes(form)) ? [...names, "number in MCP auth"] : names;
}

function leakedOnDisk(service: TestService): string[] {
	return [...service.folder.contents().values()].flatMap(leaked);
}

/** Returns the record with violations in members that contain no secrets. */
function broken(json: JsonObject): JsonObject {
	return { ...json, id: "no-uuid", max_iterations: 0, tags: { UPPER: "x" } };
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

/** Returns everything that a key without the secrets scope can read about the stored records. */
async function readWithoutScope(service: TestService): Promise<string[]> {
	const client = readClient(service, "gRPC", READER);
	const text = <Desc extends DescMessage>(desc: Desc, message: MessageShape<Desc>) => toJsonString(desc, message);
	const texts: string[] = [];
	for (const { json } of [...canaries, { json: pinRecord }]) {
		const id = String(json.id);
		texts.push(await getText(service, READER, id), await getText(service, READER, id, "secrets=encrypted"));
		texts.push(JSON.stringify(await getEvents(service, READER, id)));
		texts.push(JSON.stringify(await getEvents(service, READER, id, "secrets=encrypted")));
		for (const secrets of [SecretsMode.REDACTED, SecretsMode.ENCRYPTED])
			texts.push(text(GetConversationResponseSchema, await client.getConversation({ id, secrets })));
	}
	for (const request of [{ pageSize: 1000 }, { ...FULL, pageSize: 1000, secrets: SecretsMode.ENCRYPTED }]) {
		texts.push(text(ListConversationsResponseSchema, await client.listConversations(request)));
		texts.push(text(ListConversationUpdatesResponseSchema, await client.listConversationUpdates(request)));
	}
	const watched = await updatesUntilCaughtUp(service, READER, { start: BEGINNING, ...FULL });
	texts.push(...watched.map((update) => text(ConversationUpdateSchema, update)));
	return texts;
}

describe.each([
	["without an encryption key", {}],
	["with an encryption key", { ENCRYPTION_KEY: randomBytes(32).toString("base64") }],
])("%s", (_, env) => {
	test("no secret reaches the disk, the log, an error, telemetry, or a read without the secrets scope", async () => {
		await using receiver = await OtlpReceiver.start();
		const telemetry = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url };
		// The exporters read it from the environment of the process.
		vi.stubEnv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url);
		onTestFinished(() => {
			vi.unstubAllEnvs();
		});
		await using service = await startTestService({ ...env, ...telemetry, ACCESS_KEYS, LOG_LEVEL: "trace" });
		const client = ingestClient(service, "gRPC", READER);
		for (const { json } of [...canaries, { json: pinRecord }]) {
			expect((await postWebhook(service, READER, JSON.stringify(json))).status).toBe(200);
			// A second record of the conversation, so that an update has changed fields.
			await client.ingestConversation(ingestRequest({ ...json, max_iterations: 7 }));

			const refused = await postWebhook(service, READER, JSON.stringify(broken(json)));
			expect(refused.status).toBe(422);
			expect(leaked(await refused.text())).toEqual([]);
			const request = ingestRequest(json);
			if (request.conversation !== undefined) request.conversation.id = "no-uuid";
			const failure = await client.ingestConversation(request).then(
				() => Promise.reject(new Error("the record was accepted")),
				(error: unknown) => ConnectError.from(error),
			);
			expect(leaked(JSON.stringify([failure.message, badRequest(failure)?.fieldViolations]))).toEqual([]);

			const events = eventsOf(json);
			expect((await postEvents(service, READER, String(json.id), JSON.stringify(events))).status).toBe(200);
			const invalid = JSON.stringify([...events, { ...events[1], timestamp: "never" }]);
			const refusedEvents = await postEvents(service, READER, String(json.id), invalid);
			expect(refusedEvents.status).toBe(422);
			expect(leaked(await refusedEvents.text())).toEqual([]);
		}
		const texts = await readWithoutScope(service);
		expect([...new Set(texts.flatMap(leaked))]).toEqual([]);
		expect(leakedOnDisk(service)).toEqual([]);
		expect(leaked((await scrape(service, KEY)).text)).toEqual([]);
		await service.stop();
		expect(leakedOnDisk(service)).toEqual([]);
		expect(leaked(service.log())).toEqual([]);
		expect(receiver.spans.length).toBeGreaterThan(canaries.length);
		expect(receiver.metrics.size).toBeGreaterThan(0);
		expect(receiver.bodies.flatMap(leaked)).toEqual([]);
		// `leaked` finds secrets that are there.
		const [first] = canaries;
		expect(leaked(`x${first?.canary}x${pin}`)).toEqual([first?.name, "number in MCP auth"]);
	});
});

describe("an access key without the secrets scope", () => {
	test("cannot learn from changed fields whether it has guessed a secret", async () => {
		await using service = await startTestService({
			ACCESS_KEYS,
			ENCRYPTION_KEY: randomBytes(32).toString("base64"),
		});
		const at = (updated_at: string, pin: string) =>
			record({
				id: "7c9e6679-7425-40de-944b-e07fc1f90ae7",
				updated_at,
				agent_state: { pin_token: pin, shown: 1 },
				agent: { kind: "Agent", llm: { model: "m", api_key: pin } },
			});
		expect((await postWebhook(service, KEY, JSON.stringify(at("2026-11-21T08:00:00Z", "62")))).status).toBe(200);
		for (const guess of ["61", "62", "63"])
			expect((await postWebhook(service, READER, JSON.stringify(at("2000-01-01T00:00:00Z", guess)))).status).toBe(200);

		const paths = async (key: string) => {
			const { updates } = await readClient(service, "gRPC", key).listConversationUpdates({});
			const watched = await updatesUntilCaughtUp(service, key, { start: BEGINNING });
			expect(watched.map(({ changedFields }) => changedFields)).toEqual(
				updates.map(({ changedFields }) => changedFields),
			);
			return updates.slice(1).map(({ changedFields }) => changedFields?.paths.toSorted());
		};
		const known = await paths(READER);
		expect(known).toEqual(Array.from({ length: 3 }, () => known[0]));
		expect(known[0]).toEqual(["updated_at"]);
		const [wrong, right, wrongAgain] = await paths(KEY);
		expect(wrong).toEqual(wrongAgain);
		expect(right).toEqual(["updated_at"]);
		expect(wrong).not.toEqual(right);
	});
});
