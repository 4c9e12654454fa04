import { randomUUID } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import type { JsonObject } from "@bufbuild/protobuf";
import { SecretsMode } from "../../gen/conversations/v1/conversation_service_pb.js";
import { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { ServiceProcess } from "../support/child.ts";
import { type Endpoints, getText, ingestClient, readClient } from "../support/clients.ts";
import { allEvents, eventIngestClient, eventJson, ingestEventsRequest } from "../support/event-clients.ts";
import { expectedJson } from "../support/expected-json.ts";
import { object, record } from "../support/fixtures.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";
import { batchOf, eventsByWebhook, filler, POSTED_AT, Refused, recordByWebhook } from "./posts.ts";
import type { Report } from "./report.ts";
import type { Run } from "./run.ts";

/** Number of clients per transport that post records, and that post events of one conversation. */
const RECORD_CLIENTS = 4;
const EVENT_CLIENTS = 2;
/** Number of records acknowledged before a kill that are posted again after the restart. */
const REPEATED = 10;
/** Maximum time for the posts before a kill, in milliseconds. */
const POSTS_TIMEOUT = 60_000;

const { plan } = new RecordFormat();

/** An acknowledged record. */
interface Acknowledged {
	readonly json: JsonObject;
	/** Undefined until a response has returned it. The webhook's response does not. */
	sequence: bigint | undefined;
}

/** A conversation whose events are posted during one life of the service. */
interface EventConversation {
	readonly id: string;
	readonly send: SendEvents;
	readonly acknowledged: JsonObject[];
	/** The batch without a response. */
	open: readonly JsonObject[];
}

type SendRecord = (service: Endpoints, json: JsonObject) => Promise<bigint | undefined>;
type SendEvents = (service: Endpoints, id: string, batch: readonly JsonObject[]) => Promise<void>;

/** What was acknowledged between a start and a kill of the service. */
interface Life {
	readonly records: Acknowledged[];
	readonly conversations: EventConversation[];
}

/** Kills the service repeatedly while clients post records and events over both transports. */
export const kills: Run = {
	name: "kills",
	about: "SIGKILL while records and events are posted over HTTP and gRPC; all that was acknowledged is compared",
	counted: "kills",
	long: 300,
	short: 5,
	async run(count, random, report) {
		using folder = new TempFolder("disk");
		const database = folder.file("conversations.db");
		const lives: Life[] = [];
		let mostMemory = 0;
		for (let kill = 0; kill < count; kill++) {
			await using service = await ServiceProcess.start(database);
			const last = lives.at(-1);
			if (last !== undefined) await expectKept(service, last, report);
			const life: Life = { records: [], conversations: [] };
			lives.push(life);
			const clients = startClients(service, life, random.integer(1, 1000), report);
			const enough = random.integer(1, 80);
			const until = performance.now() + POSTS_TIMEOUT;
			while (answered(life) < enough && !service.ended && performance.now() < until) await setImmediate();
			report.expect(answered(life) >= enough, `only ${answered(life)} posts were answered in ${POSTS_TIMEOUT} ms`);
			for (let turn = random.integer(0, 50); turn > 0; turn--) await setImmediate();
			mostMemory = Math.max(mostMemory, service.residentBytes);
			service.signal("SIGKILL");
			const { signal } = await service.exit();
			report.expect(signal === "SIGKILL", `the service ended before it was killed: ${service.output.stderr}`);
			await Promise.all(clients);
			if ((kill + 1) % 50 === 0) report.figure(`${kill + 1} kills`);
		}
		await using service = await ServiceProcess.start(database);
		for (const life of lives) await expectKept(service, life, report);
		await expectEachOnce(service, lives, report);
		const records = lives.reduce((sum, life) => sum + life.records.length, 0);
		report.figure(
			`${count} kills; ${records} records and ${lives.reduce((sum, life) => sum + events(life), 0)} events acknowledged`,
		);
		report.figure(`resident memory before a kill: at most ${Math.round(mostMemory / 2 ** 20)} MiB`);
		report.expect(records >= count, "too few records were acknowledged to say anything");
	},
};

const eventsByGrpc: SendEvents = async (service, id, batch) => {
	await eventIngestClient(service, KEY).ingestConversationEvents(ingestEventsRequest(id, batch));
};

function events({ conversations }: Life): number {
	return conversations.reduce((sum, { acknowledged }) => sum + acknowledged.length, 0);
}

function answered(life: Life): number {
	return life.records.length + events(life) / 2;
}

/** Starts clients. Each continues until a post fails. */
function startClients(service: Endpoints, life: Life, size: number, report: Report): Promise<void>[] {
	const grpc = ingestClient(service, "gRPC", KEY);
	const recordByGrpc: SendRecord = async (_, json) => (await grpc.ingestConversation(ingestRequest(json))).sequence;
	const untilGone = async (kind: string, once: (count: number) => Promise<void>): Promise<void> => {
		for (let count = 0; ; count++)
			try {
				await once(count);
				report.answer(kind, "success");
			} catch (error) {
				// Without a response the client cannot know whether the record is stored.
				report.answer(kind, error instanceof Refused ? error.message : "closed");
				return;
			}
	};
	const records = (kind: string, send: SendRecord) =>
		untilGone(kind, async (count) => {
			const json = record({
				title: `update ${count}`,
				agent_state: { filler: filler(count + size) },
				unnamed: { count },
			});
			life.records.push({ json, sequence: await send(service, json) });
		});
	const batches = (kind: string, send: SendEvents) => {
		const conversation: EventConversation = { id: randomUUID(), send, acknowledged: [], open: [] };
		return untilGone(kind, async (count) => {
			if (count === 0) {
				const json = record({ id: conversation.id, updated_at: POSTED_AT });
				await recordByWebhook(service, json);
				life.conversations.push(conversation);
				return;
			}
			const batch = batchOf(count - 1, size);
			conversation.open = batch;
			await send(service, conversation.id, batch);
			conversation.acknowledged.push(...batch);
			conversation.open = [];
		});
	};
	const each = (number: number, client: () => Promise<void>) => Array.from({ length: number }, client);
	return [
		...each(RECORD_CLIENTS, () => records("records over HTTP", recordByWebhook)),
		...each(RECORD_CLIENTS, () => records("records over gRPC", recordByGrpc)),
		...each(EVENT_CLIENTS, () => batches("events over HTTP", eventsByWebhook)),
		...each(EVENT_CLIENTS, () => batches("events over gRPC", eventsByGrpc)),
	];
}

/** Compares everything acknowledged with what is stored, and posts the unanswered batches again. */
async function expectKept(service: Endpoints, life: Life, report: Report): Promise<void> {
	const grpc = ingestClient(service, "gRPC", KEY);
	for (const update of life.records.slice(-REPEATED)) {
		const { repetition, sequence } = await grpc.ingestConversation(ingestRequest(update.json));
		update.sequence ??= sequence;
		report.expect(
			repetition && sequence === update.sequence,
			`an acknowledged record of ${update.json.id} is taken again, as ${sequence} after ${update.sequence}`,
		);
	}
	for (const { json } of life.records) {
		const kept = await read(service, json.id);
		report.expect(
			isDeepStrictEqual(kept, expectedJson(plan, json)),
			`the record of ${json.id} is not the acknowledged one`,
		);
	}
	for (const conversation of life.conversations) await expectEvents(service, conversation, report);
}

/** Returns the stored record of a conversation. Undefined when it cannot be read. */
async function read(service: Endpoints, id: JsonObject[string] | undefined): Promise<JsonObject | undefined> {
	try {
		return object(JSON.parse(await getText(service, KEY, id)));
	} catch {
		return undefined;
	}
}

async function expectEvents(service: Endpoints, conversation: EventConversation, report: Report): Promise<void> {
	const { id, acknowledged, open, send } = conversation;
	if (open.length > 0) await send(service, id, open);
	acknowledged.push(...open);
	conversation.open = [];
	const entries = await allEvents(service, KEY, { conversationId: id, secrets: SecretsMode.PLAINTEXT });
	const kept = entries.map(({ event }) => eventJson(event));
	report.expect(isDeepStrictEqual(kept, acknowledged), `the events of ${id} are not the acknowledged ones`);
	if (acknowledged.length === 0) return;
	const { max_iterations, leaf_event_id } = (await read(service, id)) ?? {};
	report.expect(
		max_iterations === acknowledged.length / 2 && leaf_event_id === acknowledged.at(-2)?.id,
		`the record of ${id} tells ${max_iterations} and ${leaf_event_id}, which is not what its events tell`,
	);
}

/** Checks that no posted record is stored twice, and that each has the sequence in its response. */
async function expectEachOnce(service: Endpoints, lives: readonly Life[], report: Report): Promise<void> {
	const client = readClient(service, "gRPC", KEY);
	const kept = new Map<string, bigint>();
	let last = 0n;
	let pageToken = "";
	do {
		const page = await client.listConversationUpdates({ pageSize: 1000, pageToken, origin: UpdateOrigin.POSTED });
		for (const { conversationId, sequence } of page.updates) {
			report.expect(sequence > last, `update ${sequence} is listed after ${last}`);
			last = sequence;
			report.expect(!kept.has(conversationId), `the record of ${conversationId} is kept twice`);
			kept.set(conversationId, sequence);
		}
		pageToken = page.nextPageToken;
	} while (pageToken !== "");
	for (const { json, sequence } of lives.flatMap(({ records }) => records)) {
		const stored = kept.get(String(json.id));
		report.expect(
			stored !== undefined && stored === (sequence ?? stored),
			`the record of ${json.id} is update ${stored}, and was acknowledged as ${sequence}`,
		);
	}
}
