import { hash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { JsonObject } from "@bufbuild/protobuf";
import { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { type Endpoints, getText, readClient } from "../support/clients.ts";
import { allEvents, eventJson } from "../support/event-clients.ts";
import { expectedJson } from "../support/expected-json.ts";
import { object } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";
import type { Report } from "./report.ts";

const { plan } = new RecordFormat();

/** A conversation with its acknowledged records and events, in order. */
export interface Conversation {
	readonly id: string;
	/** Titles of the posted records, each with the sequence in its response. */
	readonly records: { readonly title: string; readonly sequence: bigint | undefined }[];
	/** The last record. */
	record: JsonObject | undefined;
	/** Digests of the events. */
	readonly events: string[];
	/** Id of the last action of the agent. */
	lastAction: string | undefined;
}

/** Content of a replica. */
export interface Kept {
	readonly updates: readonly {
		readonly sequence: bigint;
		readonly conversationId: string;
		readonly posted: boolean;
		readonly title: string | undefined;
	}[];
	readonly events: readonly { readonly sequence: bigint; readonly conversationId: string; readonly digest: string }[];
}

/** Returns what identifies an event with all its members. */
export function digestOf(event: JsonObject): string {
	return hash("sha256", JSON.stringify(Object.entries(event).sort()));
}

/** Lists the content of a replica. */
export async function keptBy(replica: Endpoints): Promise<Kept> {
	const client = readClient(replica, "gRPC", KEY);
	const updates: Kept["updates"][number][] = [];
	let pageToken = "";
	do {
		const page = await client.listConversationUpdates({ pageSize: 1000, pageToken });
		for (const { sequence, conversationId, origin, summary } of page.updates)
			updates.push({ sequence, conversationId, posted: origin === UpdateOrigin.POSTED, title: summary?.title });
		pageToken = page.nextPageToken;
	} while (pageToken !== "");
	const entries = await allEvents(replica, KEY);
	const events = entries.map((entry) => ({ ...entry, digest: digestOf(eventJson(entry.event)) }));
	return {
		updates,
		events: events.map(({ sequence, conversationId, digest }) => ({ sequence, conversationId, digest })),
	};
}

/**
 * Reports acknowledged records and events that are missing, changed, duplicated or out of order, and conversations that
 * nobody posted.
 */
export function expectEachOnce(
	{ updates, events }: Kept,
	conversations: readonly Conversation[],
	report: Report,
): void {
	for (const { id, records, events: acknowledged } of conversations) {
		const posted = updates.filter(({ conversationId, posted }) => conversationId === id && posted);
		const titles = posted.map(({ title }) => title);
		const given = records.map(({ title }) => title);
		report.expect(
			isDeepStrictEqual(titles, given),
			`the conversation ${id} has the records ${titles}, and acknowledged are ${given}`,
		);
		for (const [n, { sequence, title }] of records.entries())
			report.expect(
				sequence === undefined || posted[n]?.sequence === sequence,
				`${title} is update ${posted[n]?.sequence}, and was acknowledged as ${sequence}`,
			);
		const digests = events.filter(({ conversationId }) => conversationId === id).map(({ digest }) => digest);
		report.expect(
			isDeepStrictEqual(digests, acknowledged),
			`the ${digests.length} events of ${id} are not the ${acknowledged.length} acknowledged ones`,
		);
	}
	const known = new Set(conversations.map(({ id }) => id));
	for (const { conversationId } of updates)
		report.expect(known.has(conversationId), `nobody posted the conversation ${conversationId}`);
}

/** Reports records that are not read as they were posted, or that do not tell what the last events tell. */
export async function expectRecords(
	replica: Endpoints,
	conversations: readonly Conversation[],
	report: Report,
): Promise<void> {
	for (const { id, record, events, lastAction } of conversations) {
		if (record === undefined) continue;
		const read = object(JSON.parse(await getText(replica, KEY, id)));
		const { max_iterations, leaf_event_id } = read;
		const isRight =
			lastAction === undefined
				? isDeepStrictEqual(read, expectedJson(plan, record))
				: max_iterations === events.length / 2 && leaf_event_id === lastAction;
		report.expect(isRight, `the record of ${id} is not the acknowledged one, or not what its events tell`);
	}
}
