import { randomBytes, randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { AccessKeyService } from "../../gen/conversations/v1/access_key_service_pb.js";
import { type AuditEntry, AuditService } from "../../gen/conversations/v1/audit_service_pb.js";
import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import { ConversationEventService } from "../../gen/conversations/v1/conversation_event_service_pb.js";
import { ConversationOwnerService } from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import {
	ConversationService,
	ConversationView,
	SecretsMode,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { ForwardingService } from "../../gen/conversations/v1/forwarding_service_pb.js";
import { idDigest } from "../../src/store/erasure.ts";
import { clientOf, postWebhook } from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { record } from "../support/fixtures.ts";
import { KEY, startTestService } from "../support/service.ts";

const RED = "key-of-the-red-agents";
const ENV = {
	ACCESS_KEYS: `test:${KEY}:ingest+read+secrets+keys+erase+forward,red:${RED}:ingest+read+secrets+keys+forward@red`,
	ENCRYPTION_KEY: randomBytes(32).toString("base64"),
};

function lineOf({ action, caller, owner, subject, details }: AuditEntry): string {
	return [action, caller, owner, subject, details].join(" ");
}

test.each(ENGINES)("with $engine, the audit tells who did what, in order", async ({ open }) => {
	await using databases = await open();
	await using service = await startTestService({ ...ENV, ...(await databases.create()) });
	const [id, ofRed] = [randomUUID(), randomUUID()];
	for (const [key, one] of [
		[KEY, id],
		[RED, ofRed],
	] as const)
		expect((await postWebhook(service, key, JSON.stringify(record({ id: one })))).status).toBe(200);
	const keys = clientOf(AccessKeyService, service, "connect", KEY);
	await keys.createAccessKey({ name: "new", scopes: ["read"] });
	await keys.revokeAccessKey({ name: "new" });
	// Revoked already: nothing is done.
	await keys.revokeAccessKey({ name: "new" });
	const owners = (key: string) => clientOf(ConversationOwnerService, service, "connect", key);
	const assign = (key: string) =>
		owners(key).assignOwner({ owner: "blue", conversations: { case: "ids", value: { ids: [id] } } });
	await expect(owners(KEY).assignOwner({ owner: "blue" })).rejects.toThrow("conversations must name ids, a sender");
	await expect(assign(RED)).rejects.toThrow("A key with an owner cannot assign conversations");
	expect(await assign(KEY)).toMatchObject({ assigned: 1n, leftWithoutSender: 0n });
	expect(service.log()).toContain('"event":"owner_assigned","owner":"blue","count":1,"caller":"test"');
	const forwarding = clientOf(ForwardingService, service, "connect", RED);
	await forwarding.createEndpoint({ name: "hook", url: "https://receiver.example/", changes: ["FINISHED"] });
	await forwarding.updateEndpoint({ name: "hook", form: "chat" });
	await forwarding.deleteEndpoint({ name: "hook" });
	await clientOf(ConversationEraseService, service, "connect", KEY).deleteConversation({ id });

	const audit = clientOf(AuditService, service, "connect", KEY);
	const { entries, nextPageToken } = await audit.listAudit({});
	const expected = [
		"key.created test  new read",
		"key.revoked test  new ",
		"conversations.assigned test  blue 1",
		"endpoint.created red red hook ",
		"endpoint.changed red red hook form",
		"endpoint.deleted red red hook ",
		`conversation.erased test  ${idDigest(id)} `,
	].toReversed();
	expect(entries.map(lineOf)).toEqual(expected);
	expect(entries.map(({ number }) => number)).toEqual([7n, 6n, 5n, 4n, 3n, 2n, 1n]);
	expect(nextPageToken).toBe("");
	expect(JSON.stringify(entries.map(lineOf))).not.toContain(id);

	const own = await clientOf(AuditService, service, "connect", RED).listAudit({});
	expect(own.entries.map(({ action }) => action)).toEqual(["endpoint.deleted", "endpoint.changed", "endpoint.created"]);
});

test("each read of secrets in plain text is in the audit, before it is shown", async () => {
	await using service = await startTestService(ENV);
	const id = randomUUID();
	expect((await postWebhook(service, KEY, JSON.stringify(record({ id })))).status).toBe(200);
	const client = clientOf(ConversationService, service, "gRPC", RED);
	const reading = clientOf(ConversationService, service, "gRPC", KEY);
	const secrets = SecretsMode.PLAINTEXT;
	await reading.getConversation({ id, secrets });
	await reading.getConversation({ id, secrets: SecretsMode.ENCRYPTED });
	await reading.listConversations({ view: ConversationView.FULL, secrets });
	await reading.listConversations({ view: ConversationView.SUMMARY, secrets });
	await reading.listConversationUpdates({ conversationId: id, view: ConversationView.FULL, secrets });
	await clientOf(ConversationEventService, service, "gRPC", KEY).listConversationEvents({
		conversationId: id,
		secrets,
	});
	for await (const _ of reading.watchConversationUpdates({
		start: { case: "afterSequence", value: 0n },
		view: ConversationView.FULL,
		secrets,
	}))
		break;
	await expect(client.getConversation({ id, secrets })).rejects.toThrow("There is no such conversation");
	const { entries } = await clientOf(AuditService, service, "gRPC", KEY).listAudit({});
	const digest = idDigest(id);
	expect(entries.map(lineOf).toReversed()).toEqual([
		`secrets.read test  ${digest} conversations.v1.GetConversationRequest`,
		"secrets.read test   conversations.v1.ListConversationsRequest",
		`secrets.read test  ${digest} conversations.v1.ListConversationUpdatesRequest`,
		`secrets.read test  ${digest} conversations.v1.ListConversationEventsRequest`,
		"secrets.read test   conversations.v1.WatchConversationUpdatesRequest",
		`secrets.read red red ${digest} conversations.v1.GetConversationRequest`,
	]);
});

test("the JSON reads audit secrets, too, and list the audit with the scope keys only", async () => {
	await using service = await startTestService({
		...ENV,
		ACCESS_KEYS: `${ENV.ACCESS_KEYS},other:${"o".repeat(20)}:read`,
	});
	const id = randomUUID();
	expect((await postWebhook(service, KEY, JSON.stringify(record({ id })))).status).toBe(200);
	const get = async (path: string, key = KEY) => {
		const response = await fetch(`${service.http}/api/v1/${path}`, { headers: { "X-Access-Token": key } });
		return { status: response.status, json: await response.json() };
	};
	const paths = [`conversations/${id}`, "conversations?view=full&page_size=1", `conversations/${id}/events`];
	for (const path of paths)
		expect(await get(`${path}${path.includes("?") ? "&" : "?"}secrets=plaintext`)).toMatchObject({ status: 200 });
	const { json } = await get("audit?page_size=2");
	expect(json).toEqual({
		entries: [
			{
				number: 3,
				at: expect.stringMatching(/Z$/),
				action: "secrets.read",
				caller: "test",
				owner: "",
				subject: idDigest(id),
				details: "conversations.v1.ListConversationEventsRequest",
			},
			expect.objectContaining({ number: 2, subject: "" }),
		],
		next_page_token: expect.stringMatching(/./),
	});
	expect(await get("audit", "o".repeat(20))).toMatchObject({ status: 403 });
	expect(await get("audit?page_token=x")).toMatchObject({ status: 400 });
});
