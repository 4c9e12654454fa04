import { isDeepStrictEqual } from "node:util";
import { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { type Endpoints, readClient } from "../support/clients.ts";
import { allEvents } from "../support/event-clients.ts";
import { KEY } from "../support/service.ts";
import type { Report } from "./report.ts";

/** A conversation with its acknowledged records and events, in order. */
export interface Conversation {
	readonly id: string;
	/** Titles of the posted records, each with the sequence in its response. */
	readonly records: { readonly title: string; readonly sequence: bigint | undefined }[];
	/** Ids of the events. */
	readonly events: string[];
}

/** Content of a replica. */
export interface Kept {
	readonly updates: readonly {
		readonly sequence: bigint;
		readonly conversationId: string;
		readonly posted: boolean;
		readonly title: string | undefined;
	}[];
	readonly events: readonly {
		readonly sequence: bigint;
		readonly conversationId: string;
		readonly event: string | undefined;
	}[];
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
	const events = await allEvents(replica, KEY);
	return {
		updates,
		events: events.map(({ sequence, conversationId, event }) => ({ sequence, conversationId, event: event?.id })),
	};
}

/**
 * Reports acknowledged records and events that are missing, duplicated or out of order, and conversations that nobody
 * posted.
 */
export function expectEachOnce(
	{ updates, events }: Kept,
	conversations: readonly Conversation[],
	report: Report,
): void {
	for (const { id, records, events: acknowledged } of conversations) {
		const posted = updates.filter(({ conversationId, posted }) => conversationId === id && posted);
		const titles = posted.map(({ title }) => title);
		report.expect(
			isDeepStrictEqual(
				titles,
				records.map(({ title }) => title),
			),
			`the conversation ${id} has the records ${titles}, and acknowledged are ${records.map(({ title }) => title)}`,
		);
		for (const [n, { sequence, title }] of records.entries())
			report.expect(
				sequence === undefined || posted[n]?.sequence === sequence,
				`${title} is update ${posted[n]?.sequence}, and was acknowledged as ${sequence}`,
			);
		const ids = events.filter(({ conversationId }) => conversationId === id).map(({ event }) => event);
		report.expect(
			isDeepStrictEqual(ids, acknowledged),
			`the conversation ${id} has ${ids.length} events, and ${acknowledged.length} are acknowledged, or in another order`,
		);
	}
	const known = new Set(conversations.map(({ id }) => id));
	for (const { conversationId } of updates)
		report.expect(known.has(conversationId), `nobody posted the conversation ${conversationId}`);
}
