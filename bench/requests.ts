import { readFile } from "node:fs/promises";
import { create, type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import { z } from "zod";
import { IngestConversationRequestSchema } from "../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { ConversationInfo } from "../gen/conversations/v1/conversation_pb.js";
import { GetConversationRequestSchema } from "../gen/conversations/v1/conversation_service_pb.js";
import { WEBHOOK } from "../test/support/clients.ts";
import { recordMessage } from "../test/support/record-message.ts";
import { idDigits, microsecondOf, type Variation } from "./load/plan.ts";

/** The two bodies of the corpus that the benchmarks use: about 5 KB and about 278 KB. */
export type BodyName = "small" | "large";
/** Files of the bodies, and of a third one with a native agent. */
const BODIES = {
	small: "acp-full--update-after-run",
	large: "agent-context-big--start",
	native: "native-minimal--start",
} as const;

/** A request from which a load client makes many variants. */
export interface RequestTemplate {
	readonly request: Uint8Array<ArrayBuffer>;
	/** Offsets at which the variants differ. Undefined when all are the same. */
	readonly places?: Pick<Variation, "idOffset" | "time" | "counterOffsets" | "previousOffsets"> | undefined;
}

/** Reads the text of a body. */
async function readBody(name: keyof typeof BODIES): Promise<string> {
	return await readFile(new URL(`../test/fixtures/corpus/${BODIES[name]}.json`, import.meta.url), "utf8");
}

/** The members of a body that the benchmarks use. */
const body = z.looseObject({ id: z.string(), agent: z.looseObject({}) });

/** Reads a body and parses it. */
export async function bodyJson(name: keyof typeof BODIES): Promise<z.output<typeof body>> {
	return body.parse(JSON.parse(await readBody(name)));
}

/** Returns the id of a conversation by the number that the load clients use. */
export async function conversationId(name: BodyName, conversation: number): Promise<string> {
	return idDigits(conversation) + (await bodyJson(name)).id.slice(8);
}

/** Reads the record of a body, as the first update of conversation 0. */
async function readRecord(name: BodyName): Promise<ConversationInfo> {
	const record = recordMessage(JSON.parse(await readBody(name)));
	record.id = await conversationId(name, 0);
	const seconds = record.updatedAt?.seconds ?? 0n;
	record.updatedAt = create(TimestampSchema, { seconds, nanos: microsecondOf(0) * 1000 });
	return record;
}

/** Returns the HTTP request that posts a JSON body. */
export function webhookText(body: string, key: string, path = WEBHOOK): string {
	const head = [
		`POST ${path} HTTP/1.1`,
		"Host: 127.0.0.1",
		"Content-Type: application/json",
		`X-Access-Token: ${key}`,
		`Content-Length: ${Buffer.byteLength(body)}`,
		"\r\n",
	];
	return head.join("\r\n") + body;
}

/** Returns the request that posts a body to the webhook. */
export async function webhookRequest(name: BodyName, key: string): Promise<RequestTemplate> {
	return templateOf(await readBody(name), key);
}

/** Number of calls of a model after which the records of {@link growingRequests} do not grow. */
const GROWN = 40;

/** Returns the requests for the updates of a conversation whose record lists one more call of a model each time. */
export async function growingRequests(key: string): Promise<RequestTemplate[]> {
	const record = await bodyJson("small");
	return Array.from({ length: GROWN }, (_, last) => {
		const calls = Array.from({ length: last + 1 }, (_, call) => call);
		const metrics = {
			model_name: "model",
			accumulated_cost: calls.length / 100,
			accumulated_token_usage: { model: "model", prompt_tokens: calls.length * 1_000, completion_tokens: calls.length },
			costs: calls.map((call) => ({ model: "model", cost: 0.01, timestamp: 1_790_000_000 + call })),
			token_usages: calls.map((call) => ({
				...{ model: "model", prompt_tokens: 1_000, completion_tokens: 1, response_id: `response-${call}` },
			})),
			response_latencies: calls.map((call) => ({ model: "model", latency: 1.5, response_id: `response-${call}` })),
		};
		return templateOf(JSON.stringify({ ...record, stats: { usage_to_metrics: { agent: metrics } } }), key);
	});
}

function templateOf(body: string, key: string): RequestTemplate {
	const id = onlyMatch(body, /"id":"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]+)"/g);
	const fraction = onlyMatch(body, /"updated_at":"[0-9T:-]{19}\.([0-9]{6})Z"/g);
	const request = Buffer.from(webhookText(body, key));
	const bodyStart = request.length - Buffer.byteLength(body);
	const offset = (index: number): number => bodyStart + Buffer.byteLength(body.slice(0, index));
	const time = { offset: offset(fraction), form: "digits" } as const;
	return { request, places: { idOffset: offset(id), time } };
}

/**
 * The batches of events that are measured.
 *
 * - `usual`: five events that a real agent server sent together, among them state updates that change nothing.
 * - `plain`: five events, none of them a state update.
 * - `full-state`: one full state of the large body's record. One member differs from request to request.
 */
export type BatchName = "usual" | "plain" | "full-state";

/** The members of a captured event that the benchmarks use. */
const capturedEvent = z.looseObject({ id: z.string(), kind: z.string() });

const STATE_UPDATE = "ConversationStateUpdateEvent";

async function readBatch(name: string): Promise<z.output<typeof capturedEvent>[]> {
	const file = new URL(`../test/fixtures/events/${name}.json`, import.meta.url);
	return z.array(capturedEvent).parse(JSON.parse(await readFile(file, "utf8")));
}

async function batchEvents(name: BatchName): Promise<object[]> {
	const usual = await readBatch("v1431-acp-minimal--dc75-batch1");
	if (name === "usual") return usual;
	if (name === "plain") {
		const run = await readBatch("v1431-acp-minimal--dc75-batch2");
		return [...usual, ...run].filter(({ kind }) => kind !== STATE_UPDATE).slice(0, 5);
	}
	const { id: _, created_at: __, updated_at: ___, ...value } = await bodyJson("large");
	return [
		{
			source: "environment",
			kind: STATE_UPDATE,
			key: "full_state",
			value: { ...value, last_user_message_id: MESSAGE },
		},
	];
}

/** Ids whose first eight digits are replaced by the number of the update. */
const MESSAGE = "00000000-1111-4111-8111-111111111111";
const eventId = (index: number) => `00000000-2222-4222-8222-22222222222${index}`;
/** Stands for the last event of the batch before. */
const PREVIOUS = "00000000-3333-4333-8333-333333333333";
/** Later than all records of the load, so that state updates apply. */
const HAPPENED = "2027-01-31T12:00:00.000000";

/** Returns the request that posts a batch of events, for the same conversations as {@link webhookRequest}. */
export async function eventsRequest(name: BatchName, key: string): Promise<RequestTemplate> {
	const events = await batchEvents(name);
	// Each event names the one before, as those of a real agent server do; the first one the last of the batch before.
	const parentOf = (index: number) => (index === 0 ? PREVIOUS : eventId(index - 1));
	const body = JSON.stringify(
		events.map((event, index) => ({ ...event, id: eventId(index), parent_id: parentOf(index), timestamp: HAPPENED })),
	);
	const id = await conversationId(name === "full-state" ? "large" : "small", 0);
	const text = webhookText(body, key, `/api/v1/webhooks/events/${id}`);
	const request = Buffer.from(text);
	const ids = [...events.keys()].map(eventId);
	if (name === "full-state") ids.push(MESSAGE);
	const counterOffsets = ids.flatMap((counted) => placesOf(request, counted));
	const previousOffsets = placesOf(request, PREVIOUS);
	const last = Buffer.from(eventId(events.length - 1));
	for (const offset of previousOffsets) last.copy(request, offset);
	return { request, places: { idOffset: request.indexOf(id), counterOffsets, previousOffsets } };
}

/** Returns the `IngestConversation` request of a body. */
export async function ingestRequest(name: BodyName): Promise<RequestTemplate> {
	const conversation = await readRecord(name);
	const request = grpcFrame(IngestConversationRequestSchema, create(IngestConversationRequestSchema, { conversation }));
	const idOffset = onlyPlace(request, Buffer.from(conversation.id ?? ""));
	const encodedTime = toBinary(TimestampSchema, conversation.updatedAt ?? create(TimestampSchema));
	// The nanoseconds are the last field of the message and take four bytes.
	const offset = onlyPlace(request, encodedTime) + encodedTime.length - 4;
	return { request, places: { idOffset, time: { offset, form: "varint" } } };
}

/** Returns the `GetConversation` request for the conversations of {@link ingestRequest}. */
export async function getRequest(name: BodyName): Promise<RequestTemplate> {
	const id = await conversationId(name, 0);
	const request = grpcFrame(GetConversationRequestSchema, create(GetConversationRequestSchema, { id }));
	return { request, places: { idOffset: onlyPlace(request, Buffer.from(id)) } };
}

/** Encodes a message as an uncompressed Length-Prefixed-Message (gRPC over HTTP/2). */
export function grpcFrame<Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): Buffer<ArrayBuffer> {
	const bytes = toBinary(schema, message);
	const frame = Buffer.alloc(5 + bytes.length);
	frame.writeUInt32BE(bytes.length, 1);
	frame.set(bytes, 5);
	return frame;
}

function onlyMatch(text: string, pattern: RegExp): number {
	const [match, ...others] = text.matchAll(pattern);
	if (match?.[1] === undefined || others.length > 0) throw new Error(`the body must match ${pattern} once`);
	return match.index + match[0].indexOf(match[1]);
}

/** Returns the offsets at which a message holds a text. */
function placesOf(message: Buffer, text: string): number[] {
	const places: number[] = [];
	for (let place = message.indexOf(text); place >= 0; place = message.indexOf(text, place + 1)) places.push(place);
	return places;
}

function onlyPlace(bytes: Buffer, part: Uint8Array): number {
	const place = bytes.indexOf(part);
	if (place < 0 || bytes.includes(part, place + 1)) throw new Error("the message must hold these bytes once");
	return place;
}
