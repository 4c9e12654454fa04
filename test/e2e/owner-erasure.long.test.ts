import { randomBytes, randomUUID } from "node:crypto";
import { fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import { IngestConversationEventsRequestSchema } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import {
	clientOf,
	eventIngestClient,
	gapClient,
	ingestClient,
	PROTOCOLS,
	type Protocol,
	postWebhook,
	readClient,
	refusedPostClient,
} from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { eventsRequest } from "../support/event-batches.ts";
import { postEvents } from "../support/event-clients.ts";
import { record } from "../support/fixtures.ts";
import { ingestRequest } from "../support/record-message.ts";
import { startTestService, type TestService } from "../support/service.ts";

const [RED, BLUE] = ["key-of-the-red-agents", "key-of-the-blue-agents"];
const ENV = {
	ACCESS_KEYS: `red:${RED}:ingest+read+erase@red,blue:${BLUE}:ingest+read+erase@blue`,
	ENCRYPTION_KEY: randomBytes(32).toString("base64"),
};
const EVENT = { id: "e", timestamp: "2026-01-01T00:00:01", source: "user", kind: "PauseEvent" };
/** Breaks a rule. */
const INVALID = { ...EVENT, timestamp: "yesterday" };

/** The JSON routes, or the RPCs over a protocol. Each call returns a status of HTTP. */
interface Lane {
	readonly name: string;
	post(service: TestService, key: string, members: object): Promise<number>;
	postEvents(service: TestService, key: string, id: string, event: object): Promise<number>;
	erase(service: TestService, key: string, id: string): Promise<number>;
}

const STATUS: Readonly<Partial<Record<Code, number>>> = {
	[Code.InvalidArgument]: 422,
	[Code.PermissionDenied]: 403,
	[Code.NotFound]: 404,
};
const statusOf = (call: Promise<unknown>) =>
	call.then(
		() => 200,
		(error: unknown) => STATUS[ConnectError.from(error).code] ?? 500,
	);

const JSON_ROUTES: Lane = {
	name: "JSON",
	post: async (service, key, members) =>
		(await postWebhook(service, key, JSON.stringify(record({ ...members })))).status,
	postEvents: async (service, key, id, event) => (await postEvents(service, key, id, JSON.stringify([event]))).status,
	async erase(service, key, id) {
		const url = `${service.http}/api/v1/conversations/${id}`;
		return (await fetch(url, { method: "DELETE", headers: { "X-Access-Token": key } })).status;
	},
};

function rpcs(protocol: Protocol): Lane {
	return {
		name: protocol,
		post: (service, key, members) =>
			statusOf(ingestClient(service, protocol, key).ingestConversation(ingestRequest(record({ ...members })))),
		postEvents: (service, key, id, event) => {
			const request = fromBinary(
				IngestConversationEventsRequestSchema,
				eventsRequest(id, JSON.parse(JSON.stringify([event]))),
			);
			return statusOf(eventIngestClient(service, protocol, key).ingestConversationEvents(request));
		},
		erase: (service, key, id) =>
			statusOf(clientOf(ConversationEraseService, service, protocol, key).deleteConversation({ id })),
	};
}

const LANES = [JSON_ROUTES, ...PROTOCOLS.map(rpcs)];

/** Returns the refused posts of a key that name a conversation: whether each was accepted. */
async function refused(service: TestService, key: string, id: string): Promise<readonly boolean[]> {
	const { refusedPosts } = await refusedPostClient(service, "connect", key).listRefusedPosts({ pageSize: 1000 });
	return refusedPosts.flatMap(({ conversationId, accepted }) => (conversationId === id ? [accepted] : []));
}

async function gaps(service: TestService, key: string, id: string): Promise<number> {
	const call = gapClient(service, "connect", key).listConversationGaps({ conversationId: id });
	return await call.then(
		(answer) => answer.gaps.length,
		() => 0,
	);
}

test.each(ENGINES)("with $engine, an owner's erasure leaves what another owner's records name", async ({ open }) => {
	await using databases = await open();
	await using service = await startTestService({ ...ENV, ...(await databases.create()) });
	const reads = readClient(service, "connect", RED);
	for (const lane of LANES) {
		const [parent, child, fork] = [randomUUID(), randomUUID(), randomUUID()];
		expect(await lane.post(service, RED, { id: child, parent_conversation_id: parent })).toBe(200);
		expect(await lane.post(service, RED, { id: fork, forked_from_conversation_id: parent })).toBe(200);
		expect(await lane.post(service, BLUE, { id: parent })).toBe(200);
		expect(await lane.erase(service, BLUE, parent)).toBe(200);
		expect([lane.name, (await reads.getConversation({ id: child })).conversation?.parentConversationId]).toEqual([
			...[lane.name, parent],
		]);
		expect((await reads.getConversation({ id: fork })).conversation?.forkedFromConversationId).toBe(parent);
		const children = await reads.listConversations({ filter: { parentConversationId: parent } });
		expect(children.conversations.map(({ summary }) => [summary?.id, summary?.parentConversationId])).toEqual([
			[child, parent],
		]);
	}
});

test.each(ENGINES)(
	"with $engine, an owner erases no refused post of another, and keeps nobody out",
	async ({ open }) => {
		await using databases = await open();
		await using service = await startTestService({ ...ENV, ...(await databases.create()), ACCEPT_REFUSED: "on" });
		for (const lane of LANES) {
			const id = randomUUID();
			for (const key of [BLUE, RED]) expect(await lane.postEvents(service, key, id, INVALID)).toBe(200);
			expect([await gaps(service, RED, id), await gaps(service, BLUE, id)]).toEqual([1, 1]);
			expect(await lane.erase(service, BLUE, id)).toBe(200);
			expect(await lane.erase(service, BLUE, id)).toBe(404);
			expect([await gaps(service, RED, id), await gaps(service, BLUE, id)]).toEqual([1, 0]);
			expect([await refused(service, RED, id), await refused(service, BLUE, id)]).toEqual([[true], []]);
			expect(await lane.postEvents(service, BLUE, id, INVALID)).toBe(200);
			// Who stores something first is the owner.
			expect(await lane.postEvents(service, RED, id, EVENT)).toBe(200);
			expect(await lane.post(service, RED, { id })).toBe(200);
			expect(await lane.post(service, BLUE, { id })).toBe(403);
			expect([await gaps(service, RED, id), await gaps(service, BLUE, id)]).toEqual([1, 0]);
			expect(await lane.erase(service, BLUE, id)).toBe(200);
			expect(await lane.erase(service, RED, id)).toBe(200);
			expect(await refused(service, RED, id)).toEqual([]);
		}
	},
);

test.each(ENGINES)("with $engine, refused posts that were not accepted are their senders', too", async ({ open }) => {
	await using databases = await open();
	await using service = await startTestService({ ...ENV, ...(await databases.create()) });
	for (const lane of LANES) {
		const id = randomUUID();
		for (const key of [BLUE, RED]) expect(await lane.postEvents(service, key, id, INVALID)).toBe(422);
		for (const key of [BLUE, RED]) await expect.poll(() => refused(service, key, id)).toEqual([false]);
		expect(await lane.erase(service, BLUE, id)).toBe(200);
		expect([await refused(service, RED, id), await refused(service, BLUE, id)]).toEqual([[false], []]);
		expect(await lane.post(service, RED, { id })).toBe(200);
		expect(await lane.erase(service, BLUE, id)).toBe(404);
		expect(await lane.erase(service, RED, id)).toBe(200);
		expect(await refused(service, RED, id)).toEqual([]);
	}
});
