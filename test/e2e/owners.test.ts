import { randomUUID } from "node:crypto";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import {
	type AssignOwnerRequestSchema,
	ConversationIdsSchema,
} from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import { ingestClient, ownerClient, PROTOCOLS, readClient } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY, startTestService } from "../support/service.ts";

const [RED, BLUE] = ["key-of-the-red-agents", "key-of-the-blue-agents"];
const ENV = {
	ACCESS_KEYS: `test:${KEY}:ingest+read+keys,red:${RED}:ingest+read@red,blue:${BLUE}:ingest+read+keys@blue`,
};

async function refusal(promise: Promise<unknown>): Promise<readonly [string, string]> {
	const error = await promise.then(
		() => new ConnectError("the call succeeded"),
		(reason: unknown) => ConnectError.from(reason),
	);
	return [Code[error.code] ?? "", error.rawMessage];
}

test.each(PROTOCOLS)("over %s, a caller without an owner assigns conversations, which is logged", async (protocol) => {
	await using service = await startTestService(ENV);
	const ids = [randomUUID(), randomUUID()];
	for (const id of ids) await ingestClient(service, protocol, KEY).ingestConversation(ingestRequest(record({ id })));
	const assign = (key: string, conversations: MessageInitShape<typeof AssignOwnerRequestSchema>["conversations"]) =>
		ownerClient(service, protocol, key).assignOwner({ owner: "red", ...(conversations && { conversations }) });
	expect(await refusal(assign(BLUE, { case: "allWithoutOwner", value: true }))).toEqual([
		"PermissionDenied",
		"A key with an owner cannot assign conversations",
	]);
	expect(await refusal(assign(KEY, undefined))).toEqual([
		"InvalidArgument",
		"conversations must name ids, a sender, those without a sender, or all without an owner",
	]);
	expect(
		(await assign(KEY, { case: "ids", value: create(ConversationIdsSchema, { ids: ids.slice(0, 1) }) })).assigned,
	).toBe(1n);
	expect((await assign(KEY, { case: "sender", value: "test" })).assigned).toBe(1n);
	expect((await readClient(service, protocol, RED).listConversations({})).conversations).toHaveLength(2);
	await ingestClient(service, protocol, RED).ingestConversation(ingestRequest(record({ id: ids[0] ?? "" })));
	const lines = service
		.log()
		.split("\n")
		.filter((line) => line.includes("owner_assigned"));
	expect(lines.map((line) => JSON.parse(line))).toMatchObject([
		{ owner: "red", count: 1, caller: "test" },
		{ owner: "red", count: 1, caller: "test" },
	]);
});
