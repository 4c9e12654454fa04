import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
	ConversationEventEntrySchema,
	type ListConversationEventsRequestSchema,
	type WatchConversationEventsRequestSchema,
} from "../../gen/conversations/v1/conversation_event_service_pb.js";
import { SecretsMode, WatchPosition } from "../../gen/conversations/v1/conversation_service_pb.js";
import { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { event } from "../conversations/read/reading.ts";
import type { Said } from "../conversations/watch/watching.ts";
import { eventClient, PROTOCOLS } from "../support/clients.ts";
import { RELEASE_POLL } from "../support/watching.ts";
import { READ_KEY, SECRETS_KEY, WatchService } from "./watch-service.ts";

const A = "0190d6a0-0000-7000-8000-00000000000a";
const B = "0190d6a0-0000-7000-8000-00000000000b";
const BEGINNING = { case: "position", value: WatchPosition.BEGINNING } as const;
type List = MessageInitShape<typeof ListConversationEventsRequestSchema>;
type Watch = MessageInitShape<typeof WatchConversationEventsRequestSchema>;

let service: WatchService;

beforeEach(async () => {
	service = await WatchService.start();
});

afterEach(async () => {
	await service[Symbol.asyncDispose]();
});

/** Returns the code and the message with which an action fails. */
async function failure(action: Promise<unknown>): Promise<[string, string]> {
	try {
		await action;
	} catch (error) {
		if (error instanceof ConnectError) return [Code[error.code], error.rawMessage];
		throw error;
	}
	throw new Error("nothing failed");
}

describe.each(PROTOCOLS)("over %s", (protocol) => {
	const list = (request: List, key = READ_KEY) => eventClient(service, protocol, key).listConversationEvents(request);

	/** Returns what the first `count` messages of a watch say. Runs `then` at a heartbeat, which follows the history. */
	async function watch(request: Watch, count: number, then: () => unknown = () => {}, key = READ_KEY): Promise<Said[]> {
		const said: Said[] = [];
		const left = new AbortController();
		const messages = eventClient(service, protocol, key).watchConversationEvents(request, { signal: left.signal });
		for await (const { sequence, content } of messages) {
			if (content.case === "heartbeat") {
				said.push({ at: sequence, latest: content.value.latestSequence });
				await then();
			} else said.push(sequence);
			if (said.length === count) break;
		}
		left.abort();
		return said;
	}

	test("a list and a watch have the entries of one conversation or of all, and can be filtered", async () => {
		await service.reading.keepEvents(A, event("1"), event("2", { kind: "ActionEvent", x: [1] }));
		await service.reading.keepEvents(B, event("3"));
		const { events: first, nextPageToken: pageToken } = await list({ pageSize: 2 });
		const { events: second, nextPageToken } = await list({ pageSize: 2, pageToken });
		expect([...first, ...second].map(({ sequence, conversationId }) => [sequence, conversationId])).toEqual([
			[1n, A],
			[2n, A],
			[3n, B],
		]);
		expect(nextPageToken).toBe("");
		const filter = { kinds: ["ActionEvent"] };
		const { events } = await list({ conversationId: A, afterSequence: 1n, filter });
		const [{ receivedAt } = {}] = events;
		const envelope = { id: "2", timestamp: "2026-11-21T08:55:31", source: "agent", kind: "ActionEvent" };
		expect(events).toEqual([
			create(ConversationEventEntrySchema, {
				...{ sequence: 2n, conversationId: A, origin: UpdateOrigin.POSTED },
				...{ happenedAt: { seconds: 1_795_251_331n }, ...(receivedAt && { receivedAt }) },
				event: { ...envelope, membersJson: '{"parent_id":null,"x":[1]}' },
			}),
		]);
		const more = () => service.reading.keepEvents(A, event("4", { kind: "ActionEvent" }), event("5"));
		expect(await watch({ start: BEGINNING, conversationId: A.toUpperCase(), filter }, 3, more)).toEqual([
			...[2n, { at: 3n, latest: 3n }, 4n],
		]);
		await expect.poll(() => service.eventWatches.recent.usage.followers, RELEASE_POLL).toBe(0);
	});

	test("secrets are shown in the requested form, in plain text only to a key with the scope secrets", async () => {
		const canary = "sk-canary-of-an-event";
		await service.reading.keepEvents(A, event("1", { action: { env: { API_KEY: canary } } }));
		const shown = async (secrets: SecretsMode, key?: string) =>
			JSON.parse((await list({ secrets }, key)).events[0]?.event?.membersJson ?? "").action.env.API_KEY;
		expect(await shown(SecretsMode.UNSPECIFIED)).toBe("**********");
		expect(await shown(SecretsMode.ENCRYPTED)).toMatch(/^enc:v1:/);
		expect(await shown(SecretsMode.PLAINTEXT, SECRETS_KEY)).toBe(canary);
		const refused = ["PermissionDenied", 'The access key or client certificate lacks the scope "secrets"'];
		expect(await failure(list({ secrets: SecretsMode.PLAINTEXT }))).toEqual(refused);
		expect(await failure(watch({ secrets: SecretsMode.PLAINTEXT }, 1))).toEqual(refused);
	});

	test("an invalid request is refused with its code, and with the name of an invalid field", async () => {
		for (const action of [list({ conversationId: "x" }), watch({ conversationId: "x" }, 1)])
			expect(await failure(action)).toEqual(["InvalidArgument", "conversation_id is not a UUID"]);
		const start = { case: "afterSequence", value: 4n } as const;
		expect((await failure(watch({ start }, 1)))[0]).toBe("OutOfRange");
		expect(await failure(list({}, "another key"))).toEqual(["Unauthenticated", "The access key is not known"]);
	});

	test("a watch ends with UNAVAILABLE when the service stops", async () => {
		let stopped: Promise<void> | undefined;
		const stop = () => {
			stopped = service.stop();
		};
		expect(await failure(watch({}, 2, stop))).toEqual(["Unavailable", "The service is stopping"]);
		await stopped;
	});
});
