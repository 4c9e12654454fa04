import { randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { ConversationEventIngestService } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { type Endpoints, type GrpcClient, GrpcFailure, postWebhook } from "../support/clients.ts";
import { ingestEventsRequest, postEvents } from "../support/event-clients.ts";
import { record } from "../support/fixtures.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY } from "../support/service.ts";
import { type Conversation, digestOf } from "./kept.ts";

/** `updated_at` of the records whose events are posted. The events are later. */
const POSTED_AT = "2026-11-22T08:00:00.000000Z";
const START = Date.parse(POSTED_AT);

/** A program with the client that all writers share. */
export interface Target {
	readonly replica: Endpoints;
	readonly grpc: GrpcClient;
}

/** A post that can be sent again. */
export interface Post {
	/** Sends it once. Returns the sequence of the update if the response has it. */
	readonly send: (to: Target) => Promise<bigint | undefined>;
	/** Notes in the conversation what was acknowledged. */
	readonly keep: (sequence: bigint | undefined) => void;
}

/** Returns a post to a conversation by its number, with more bytes for a larger size. */
type PostOf = (conversation: Conversation, title: string, number: number, size: number) => Post;

/** An HTTP response other than success. The message is its status. */
class Refused extends Error {
	override readonly name = "Refused";
}

/** Kinds of posts. Before events there is one record. */
export const KINDS: ReadonlyMap<string, PostOf> = new Map([
	["records over HTTP", (...given) => recordPost(...given, recordOverHttp)],
	["records over gRPC", (...given) => recordPost(...given, recordOverGrpc)],
	["events over HTTP", (...given) => eventPost(...given, eventsOverHttp)],
	["events over gRPC", (...given) => eventPost(...given, eventsOverGrpc)],
]);

/** Returns the name under which a report counts a failed post. */
export function failureOf(error: unknown): string {
	if (error instanceof Refused) return error.message;
	return error instanceof GrpcFailure ? (Code[error.code] ?? String(error.code)) : "closed";
}

type SendRecord = (to: Target, json: JsonObject) => Promise<bigint | undefined>;
type SendEvents = (to: Target, id: string, batch: readonly JsonObject[]) => Promise<void>;

const recordOverHttp: SendRecord = async ({ replica }, json) => {
	await expectSuccess(await postWebhook(replica, KEY, JSON.stringify(json)));
	return undefined;
};

const recordOverGrpc: SendRecord = async ({ grpc }, json) =>
	(await grpc.call(ConversationIngestService.method.ingestConversation, ingestRequest(json))).sequence;

const eventsOverHttp: SendEvents = async ({ replica }, id, batch) =>
	await expectSuccess(await postEvents(replica, KEY, id, JSON.stringify(batch)));

const eventsOverGrpc: SendEvents = async ({ grpc }, id, batch) => {
	const { ingestConversationEvents } = ConversationEventIngestService.method;
	await grpc.call(ingestConversationEvents, ingestEventsRequest(id, batch));
};

async function expectSuccess(response: Response): Promise<void> {
	await response.text();
	if (response.status !== 200) throw new Refused(String(response.status));
}

function recordPost(
	conversation: Conversation,
	base: string,
	number: number,
	size: number,
	send: SendRecord,
	members?: JsonObject,
): Post {
	const title = `${base} ${number}`;
	const own = members ?? { tags: { n: String(number) }, agent_state: { filler: filler(size) }, unnamed: { number } };
	const json = record({ id: conversation.id, title, ...own });
	return {
		send: (to) => send(to, json),
		keep: (sequence) => {
			conversation.records.push({ title, sequence });
			conversation.record = json;
		},
	};
}

/** Returns a post of two events: an agent's action, and a state update of one member of the record. */
function eventPost(conversation: Conversation, title: string, number: number, size: number, send: SendEvents): Post {
	if (number === 0) return recordPost(conversation, title, 0, 0, recordOverGrpc, { updated_at: POSTED_AT });
	const { id } = conversation;
	const of = (part: number, members: JsonObject): JsonObject => ({
		id: randomUUID(),
		timestamp: new Date(START + number * 1000 + part).toISOString().slice(0, -1),
		...members,
	});
	const action = of(1, { source: "agent", kind: "ActionEvent", number, filler: filler(number + size) });
	const state = { kind: "ConversationStateUpdateEvent", key: "max_iterations", value: number };
	const batch = [action, of(2, { source: "environment", ...state })];
	return {
		send: async (to) => {
			await send(to, id, batch);
			return undefined;
		},
		keep: () => {
			conversation.events.push(...batch.map(digestOf));
			conversation.lastAction = String(action.id);
		},
	};
}

/** Returns a text of up to 5,000 characters, or of 100,000 for every tenth number. */
function filler(number: number): string {
	return "x".repeat(number % 10 === 9 ? 100_000 : (number * 977) % 5000);
}
