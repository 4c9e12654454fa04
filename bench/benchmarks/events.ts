import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { z } from "zod";
import {
	ConversationEventService,
	ListConversationEventsRequestSchema,
} from "../../gen/conversations/v1/conversation_event_service_pb.js";
import { rpcPath } from "../../test/support/clients.ts";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, type Target as FigureTarget, ratioFigure } from "../figures.ts";
import { CONVERSATIONS, measurePairs, ServerTarget, type ServerUnderLoad } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { type BatchName, conversationId, eventsRequest, grpcFrame } from "../requests.ts";
import { fillEvents, listening, noteOf, webhookLoad } from "./parts.ts";

/** Maximum number of large batches under way. It keeps every processor busy. */
const LARGE_CONCURRENCY = 32;
/** Number of events stored before the measurement, and number of events in a batch. */
const STORED = 1_000_000;
const BATCH = 5;
const PAGE = 50;
/** A page is quick. A low concurrency shows its cost. */
const PAGE_CONCURRENCY = 4;

async function batchLoad(name: BatchName, service: Service): Promise<ServerUnderLoad> {
	const template = await eventsRequest(name, service.key);
	return { name: "service", pid: service.pid, port: service.httpPort, template };
}

/**
 * Durable ingest of batches of five events, compared with a server that only reads and parses the body, and with one
 * that also writes the events but checks nothing.
 */
export function events(name: "usual" | "plain", least: number): Benchmark {
	return {
		name: `events-${name}`,
		about: `webhook for events, ${BATCH} ${name} events, durable, against a node:http server that reads the body and runs JSON.parse, and against one that also writes them`,
		comparable: true,
		async run(settings, report) {
			await using folder = await DiskFolder.create(settings.folder);
			await using service = await Service.start({ database: folder.database, profile: settings.profile });
			await using client = await Child.start("load/http.ts", z.unknown());
			const records = new ServerTarget(client, await webhookLoad("small", service));
			await records.load({ ...settings, requests: CONVERSATIONS });
			const subject = await batchLoad(name, service);
			if (settings.against !== undefined) {
				await using otherFolder = await DiskFolder.create(settings.folder);
				await using other = await Service.start({ database: otherFolder.database, root: settings.against });
				await new ServerTarget(client, await webhookLoad("small", other)).load({
					...settings,
					requests: CONVERSATIONS,
				});
				const [reference, target] = [
					new ServerTarget(client, await batchLoad(name, other)),
					new ServerTarget(client, subject),
				];
				const pairs = await measurePairs(settings, reference, target, report);
				const ratios = pairs.map(([before, after]) => after.rate / before.rate);
				return [ratioFigure(`events-${name}, against ${settings.against}`, ratios, undefined, noteOf(pairs))];
			}
			await using server = await Child.start("yardsticks/http-json.ts", listening);
			await using durable = await Child.start("yardsticks/http-durable.ts", listening, [
				join(folder.path, "events.db"),
			]);
			const target = new ServerTarget(client, subject);
			const against = async (yardstick: string, { pid, ready: { port } }: typeof server, goal?: FigureTarget) => {
				const reference = new ServerTarget(client, { ...subject, name: yardstick, pid, port });
				const pairs = await measurePairs(settings, reference, target, report);
				const ratios = pairs.map(([before, after]) => after.rate / before.rate);
				return ratioFigure(`events-${name}, against the ${yardstick} server`, ratios, goal, noteOf(pairs));
			};
			return [await against("bare", server, { at: "least", value: least }), await against("bare durable", durable)];
		},
	};
}

/**
 * Cost of a full state that changes one member of the large record, compared with posting that record.
 *
 * @param conversations number of conversations to which the batches belong in turn. The service caches the records of
 *   few conversations, but not of many
 */
export function fullState(conversations: number, target: number | undefined): Benchmark {
	const name = `events-full-state-${conversations}`;
	return {
		name,
		about: `time per batch with a full state that changes one member of the large record, of ${conversations} conversations in turn, against posting that record`,
		async run(settings, report) {
			await using folder = await DiskFolder.create(settings.folder);
			await using postedFolder = await DiskFolder.create(settings.folder);
			await using service = await Service.start({ database: folder.database, profile: settings.profile });
			await using posted = await Service.start({ database: postedFolder.database });
			await using client = await Child.start("load/http.ts", z.unknown());
			const load = { ...settings, concurrency: Math.min(settings.concurrency, LARGE_CONCURRENCY) };
			const records = new ServerTarget(client, await webhookLoad("large", service));
			await records.load({ ...load, milliseconds: 60_000, requests: CONVERSATIONS });
			const reference = new ServerTarget(client, { ...(await webhookLoad("large", posted)), name: "posted" });
			const subject = new ServerTarget(client, { ...(await batchLoad("full-state", service)), conversations });
			const pairs = await measurePairs(load, reference, subject, report);
			const ratios = pairs.map(([before, after]) => before.rate / after.rate);
			const goal = target === undefined ? undefined : ({ at: "most", value: target } as const);
			return [ratioFigure(name, ratios, goal, noteOf(pairs))];
		},
	};
}

/** Cost of a batch and of a page of events when many events are stored. */
export const eventGrowth: Benchmark = {
	name: "events-growth",
	about: `time per batch, and per page of ${PAGE} events of one conversation, with ${STORED} events stored, against few`,
	async run(settings, report) {
		await using fewFolder = await DiskFolder.create(settings.folder);
		await using manyFolder = await DiskFolder.create(settings.folder);
		const few = 2 * CONVERSATIONS * BATCH * (PAGE / BATCH);
		await fillEvents(fewFolder.database, few / BATCH, report);
		await fillEvents(manyFolder.database, STORED / BATCH, report);
		await using small = await Service.start({ database: fewFolder.database });
		await using large = await Service.start({ database: manyFolder.database, profile: settings.profile });
		await using http = await Child.start("load/http.ts", z.unknown());
		await using grpc = await Child.start("load/grpc.ts", z.unknown());
		const conversation = await conversationId("small", 1);
		const request = create(ListConversationEventsRequestSchema, { conversationId: conversation, pageSize: PAGE });
		const template = { request: grpcFrame(ListConversationEventsRequestSchema, request) };
		const path = rpcPath(ConversationEventService.method.listConversationEvents);
		const pageOf = ({ pid, grpcPort: port, key }: Service, name: string) =>
			new ServerTarget(grpc, { name, pid, port, template, path, key });
		const batchOf = async (service: Service, name: string, stored: number) =>
			new ServerTarget(http, { ...(await batchLoad("plain", service)), name }, stored / BATCH);
		const figures: Figure[] = [];
		const measure = async (
			name: string,
			load: typeof settings,
			reference: ServerTarget,
			subject: ServerTarget,
			most: number,
		) => {
			const pairs = await measurePairs(load, reference, subject, report);
			const ratios = pairs.map(([before, after]) => before.rate / after.rate);
			figures.push(ratioFigure(name, ratios, { at: "most", value: most }, noteOf(pairs)));
		};
		const pages = { ...settings, concurrency: PAGE_CONCURRENCY };
		await measure("events-growth, page", pages, pageOf(small, "few"), pageOf(large, "many"), 1.3);
		const [reference, subject] = [await batchOf(small, "few", few), await batchOf(large, "many", STORED)];
		await measure("events-growth, ingest", settings, reference, subject, 1.15);
		return figures;
	},
};
