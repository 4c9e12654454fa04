import { randomBytes } from "node:crypto";
import { create, type JsonObject } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
	ConversationIngestService,
	IngestConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { CONVERSATION_ID, secretPlaces } from "../record/secrets/secret-places.ts";
import { GrpcClient, GrpcFailure, postWebhook } from "../support/clients.ts";
import { completed } from "../support/completed.ts";
import { object } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const format = new RecordFormat();
const method = ConversationIngestService.method.ingestConversation;

/** A secret of its own for each place that can hold one, and records with them. */
const canaries = secretPlaces().map(({ name, plant }) => {
	const canary = `canary-${randomBytes(9).toString("hex")}`;
	return { name, canary, record: plant(canary) };
});

/** Names of the places whose secret stands somewhere in a text. */
function leaked(text: string | Buffer): string[] {
	const bytes = Buffer.from(text);
	return canaries.filter(({ canary }) => bytes.includes(canary)).map(({ name }) => name);
}

function leakedOnDisk(service: TestService): string[] {
	return [...service.folder.contents().values()].flatMap(leaked);
}

/** The record with every rule broken that can be broken without losing its secrets. */
function broken(json: JsonObject): JsonObject {
	return { ...json, id: "no-uuid", max_iterations: 0, tags: { UPPER: "x" }, hook_config: { more: 1 } };
}

describe.each([
	["without a key for secrets at rest", {}],
	["with one", { ENCRYPTION_KEY: randomBytes(32).toString("base64") }],
])("%s", (_, env) => {
	test("no secret reaches the disk, the log, an error or a default read in plain text", async () => {
		await using service = await startTestService({ ...env, LOG_LEVEL: "trace" });
		using grpc = new GrpcClient(service, KEY);
		for (const { record } of canaries) {
			const json = object(completed(format.plan, format.toJson(record)));
			expect((await postWebhook(service, KEY, JSON.stringify(json))).status).toBe(200);
			const conversation = recordMessage({ ...json, title: "over gRPC" });
			await grpc.call(method, create(IngestConversationRequestSchema, { conversation }));

			const refused = await postWebhook(service, KEY, JSON.stringify(broken(json)));
			expect(refused.status).toBe(422);
			expect(leaked(await refused.text())).toEqual([]);
			conversation.id = "no-uuid";
			const failure = await grpc
				.call(method, create(IngestConversationRequestSchema, { conversation }))
				.catch((error: unknown) => error);
			if (!(failure instanceof GrpcFailure)) throw new Error("the record was accepted");
			expect(leaked(JSON.stringify([failure.message, failure.badRequest?.fieldViolations]))).toEqual([]);

			const read = await fetch(`${service.http}/api/v1/conversations/${CONVERSATION_ID}`, {
				headers: { "X-Access-Token": KEY },
			});
			expect(read.status).toBe(200);
			expect(leaked(await read.text())).toEqual([]);
		}
		expect(leakedOnDisk(service)).toEqual([]);
		await service.stop();
		expect(leakedOnDisk(service)).toEqual([]);
		expect(leaked(service.log())).toEqual([]);
		// The search itself finds what is there.
		const [first] = canaries;
		expect(leaked(`x${first?.canary}x`)).toEqual([first?.name]);
	});
});
