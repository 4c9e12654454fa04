import {
	create,
	type DescMessage,
	type DescMethod,
	type JsonValue,
	type MessageInitShape,
	toBinary,
} from "@bufbuild/protobuf";
import fc from "fast-check";
import { ConversationEventIngestService } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { ConversationEventService } from "../../gen/conversations/v1/conversation_event_service_pb.js";
import {
	ConversationIngestService,
	IngestConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ConversationService } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { MessagePlan } from "../../src/record/plan.ts";
import { jsonOf } from "../support/arbitrary.ts";
import { type Endpoints, rpcPath, WEBHOOK } from "../support/clients.ts";
import { eventsIn, eventsRequest } from "../support/event-batches.ts";
import { postEvents } from "../support/event-clients.ts";
import { capturedBatches, corpus, object } from "../support/fixtures.ts";
import { postBytes } from "../support/raw-http.ts";
import { FRAME, frame, headerBlock, PREFACE } from "../support/raw-http2.ts";
import { framed } from "../support/raw-rpc.ts";
import { httpAddress } from "../support/raw-socket.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY } from "../support/service.ts";
import { mutated, spoiled } from "./mutations.ts";
import { byQuery, byWebhook, grpc, http, http1Connection, http2Connection, rpc, type Sender } from "./senders.ts";
import { jsonEvents, jsonRecord, messageEvents, messageRecord, type Stored } from "./stored.ts";

/** Maximum size of the bodies used, in bytes. Larger ones take long to send, and the same rules apply to them. */
const MAX_BODY_BYTES = 20_000;
const END_STREAM = 0x1;
const END_HEADERS = 0x4;

/** A kind of input. */
export interface InputKind {
	readonly name: string;
	/** Number of inputs of this kind in proportion to the other kinds. */
	readonly weight: number;
	readonly inputs: fc.Arbitrary<Buffer>;
	readonly sender: (service: Endpoints) => Sender;
	/** Whether all inputs must be accepted. */
	readonly valid?: true;
	/** Returns what must be stored when an input is accepted. */
	readonly stored?: (input: Buffer) => readonly Stored[];
}

const ingest = ConversationIngestService.method.ingestConversation;
const ingestEvents = ConversationEventIngestService.method.ingestConversationEvents;
const EVENTS_OF = "7c9e6679-7425-40de-944b-e07fc1f90ae8";

/** Returns all kinds of input. */
export function inputKinds(plan: MessagePlan): readonly InputKind[] {
	const bodies = corpus().filter(({ bytes }) => bytes.length <= MAX_BODY_BYTES);
	const record = fc.constantFrom(...bodies);
	// Each input has its own conversation, so that the stored ones can be told apart.
	const id = fc.noBias(fc.uuid());
	const bodyBytes = fc
		.tuple(record, id)
		.map(([{ bytes, json }, own]) => Buffer.from(bytes.toString().replace(String(json.id), own)));
	const text = (value: JsonValue) => Buffer.from(JSON.stringify(value));
	const requests = fc.tuple(record, id).map(([{ json }, own]) => ingestRequest({ ...json, id: own }));
	const messageBytes = requests.map((request) => toBinary(IngestConversationRequestSchema, request));
	const batches = capturedBatches().filter(({ text }) => text.length <= MAX_BODY_BYTES);
	const batch = fc.constantFrom(...batches);
	const batchMessage = batch.map(({ text }) => eventsRequest(EVENTS_OF, eventsIn(text)));
	const json = fc.tuple(jsonOf(plan), id).map(([given, own]) => ({ ...object(given), id: own }));
	return [
		{ name: "valid records", weight: 10, inputs: json.map(text), sender: byWebhook, valid: true, stored: jsonRecord },
		{ name: "spoiled records", weight: 20, inputs: spoiled(json).map(text), sender: byWebhook, stored: jsonRecord },
		{ name: "changed bodies", weight: 20, inputs: mutated(bodyBytes), sender: byWebhook, stored: jsonRecord },
		{
			name: "changed batches of events",
			weight: 10,
			inputs: mutated(batch.map((each) => Buffer.from(each.text))),
			sender: (service) => http(async (input) => postEvents(service, KEY, EVENTS_OF, input)),
			stored: jsonEvents,
		},
		{
			name: "changed gRPC messages",
			weight: 10,
			inputs: mutated(messageBytes),
			sender: (service) => grpc(service, ingest, framed),
			stored: messageRecord,
		},
		{
			name: "changed gRPC messages of events",
			weight: 5,
			inputs: mutated(batchMessage),
			sender: (service) => grpc(service, ingestEvents, framed),
			stored: messageEvents,
		},
		{
			name: "changed gRPC frames",
			weight: 10,
			inputs: mutated(messageBytes.map(framed)),
			sender: (service) => grpc(service, ingest, (bytes) => bytes),
		},
		...(["Connect", "gRPC-Web"] as const).map(
			(form): InputKind => ({
				name: `changed messages over ${form}`,
				weight: 2,
				inputs: mutated(messageBytes),
				sender: (service) => rpc(service, form),
				stored: messageRecord,
			}),
		),
		...READS.map(
			({ method, bytes }): InputKind => ({
				name: `changed requests of ${method.name}`,
				weight: 2,
				inputs: mutated(fc.constant(bytes)),
				sender: (service) => grpc(service, method, framed),
			}),
		),
		{ name: "queries", weight: 4, inputs: query, sender: byQuery },
		{
			name: "changed connections of HTTP/1.1",
			weight: 3,
			inputs: mutated(bodyBytes.map(http1Request)),
			sender: (service) => http1Connection(httpAddress(service)),
		},
		...(["http", "grpc"] as const).map(
			(listener): InputKind => ({
				name: `changed connections of HTTP/2, ${listener} listener`,
				weight: 2,
				inputs: mutated(messageBytes.filter(({ length }) => length < 15_000).map(http2Request)),
				sender: (service) => http2Connection(listener === "grpc" ? service.grpc : httpAddress(service)),
			}),
		),
	];
}

/** Returns a request to the webhook, to be sent on its own connection. */
function http1Request(body: Buffer): Buffer {
	return postBytes(WEBHOOK, { "X-Access-Token": KEY }, body);
}

/** Returns the bytes of a connection with one gRPC call. */
function http2Request(message: Uint8Array): Buffer {
	const header = headerBlock({
		":method": "POST",
		":scheme": "http",
		":path": rpcPath(ingest),
		":authority": "test",
		"content-type": "application/grpc",
		te: "trailers",
		"x-access-token": KEY,
	});
	return Buffer.concat([
		Buffer.from(PREFACE),
		frame(FRAME.settings, 0, 0),
		frame(FRAME.headers, END_HEADERS, 1, header),
		frame(FRAME.data, END_STREAM, 1, framed(message)),
	]);
}

/** Read requests whose bytes are mutated. */
const READS = [
	read(ConversationService.method.getConversation, { id: EVENTS_OF, sequence: 1n, secrets: 1 }),
	read(ConversationService.method.listConversations, {
		pageSize: 10,
		pageToken: "token",
		view: 2,
		filter: { agentKind: "ACPAgent", titleContains: "a", parentConversationId: EVENTS_OF },
	}),
	read(ConversationEventService.method.listConversationEvents, {
		conversationId: EVENTS_OF,
		pageSize: 10,
		filter: { kinds: ["MessageEvent"], sources: ["agent"] },
	}),
] as const;

function read<Desc extends DescMessage>(
	method: DescMethod & { readonly input: Desc },
	request: MessageInitShape<Desc>,
): { readonly method: DescMethod; readonly bytes: Uint8Array } {
	return { method, bytes: toBinary(method.input, create(method.input, request)) };
}

/** Query parameters of the reads over HTTP. */
const PARAMETERS = [
	...[
		"execution_status",
		"agent_kind",
		"model",
		"parent_conversation_id",
		"tag",
		"tag_key",
		"created_from",
		"created_to",
	],
	...["updated_from", "updated_to", "title_contains", "page_size", "page_token", "view", "secrets", "sequence"],
	...["after_sequence", "kind", "source", "happened_from", "happened_to", "query", "unknown"],
];
const VALUES = ["", "0", "1", "-1", "1e9", "18446744073709551616", "full", "plaintext", "a:b", "2026-11-22T08:00:00Z"];

const query: fc.Arbitrary<Buffer> = fc
	.tuple(
		fc.constantFrom("", `/${EVENTS_OF}`, `/${EVENTS_OF}/events`, "/x", "/%zz", "/%00"),
		fc.array(
			fc.tuple(
				fc.constantFrom(...PARAMETERS),
				fc.oneof(
					fc.constantFrom(...VALUES),
					fc.string({ unit: "binary", maxLength: 20 }).map((text) => encodeURIComponent(text.toWellFormed())),
					fc.string({ maxLength: 20 }).map((text) => text.replaceAll(/[#\s]/g, "")),
				),
			),
			{ maxLength: 4 },
		),
	)
	.map(([path, given]) => Buffer.from(`${path}?${given.map(([name, value]) => `${name}=${value}`).join("&")}`));
