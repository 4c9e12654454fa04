import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationFilterSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import { readConfig } from "../../src/config/config.ts";
import { conditionsOf } from "../../src/conversations/read/filter.ts";
import { type StoreReads, visibleStore } from "../../src/conversations/read/visible-store.ts";
import type { ListOrder } from "../../src/store/condition.ts";
import { openStore } from "../../src/store/open.ts";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, median, round } from "../figures.ts";
import { RARE } from "../load/fill-plan.ts";
import { DatabaseServer, sqlOn } from "../processes/database-server.ts";
import { DiskFolder } from "../processes/service.ts";
import type { Settings } from "../settings.ts";
import { fillOwners, ownerName, type Report } from "./parts.ts";

/** Each owner has 300 conversations, 60 of them rare. */
const OWNERS = 1_000;
const CONVERSATIONS = 300_000;
const RARE_COUNT = 60_000;
const PAGE = 50;
/** Pages of each key in a round. */
const PAGES = 20;
const HOUR = 3600n;
/** The owner whose lists are measured. */
const OWNER = ownerName(7);

type Filter = Exclude<MessageInitShape<typeof ConversationFilterSchema>, { readonly $typeName: string }>;

const [CREATED, UPDATED] = [BigInt(RARE.created), BigInt(RARE.updated)];
const { IDLE, PAUSED, ERROR } = ConversationExecutionStatus;

/** Filters that find 60 or 240 conversations of each owner. */
const FILTERS: Readonly<Record<string, Filter>> = {
	none: {},
	"status, common": { executionStatus: IDLE },
	"status, rare": { executionStatus: PAUSED },
	"several statuses": { executionStatuses: [PAUSED, ERROR] },
	"agent kind, common": { agentKind: "ACPAgent" },
	"model, rare": { model: RARE.model },
	"parent, rare": { parentConversationId: RARE.parentId },
	"tag key, common": { tagKey: "team" },
	"tag and value, rare": { tags: { [RARE.tagKey]: RARE.tagValue } },
	"tag key and status, rare": { tagKey: RARE.tagKey, executionStatus: PAUSED },
	"created, rare": { createdFrom: { seconds: CREATED }, createdTo: { seconds: CREATED + HOUR } },
	"updated, rare": { updatedFrom: { seconds: UPDATED }, updatedTo: { seconds: UPDATED + HOUR } },
	"active since 2023": { activityFrom: { seconds: CREATED } },
	"title, rare": { titleContains: RARE.title },
	"no error": { hasError: false },
};
const ORDERS: readonly ListOrder[] = ["updated", "activity", "created", "cost", "tokens"];
/** Filters that are combined with each order. With a rare one, a key without an owner waits much longer than an owner. */
const ORDERED = ["none", "status, common"];

/** Reads a page, and returns the number of its entries. */
type ReadPage = (store: StoreReads) => Promise<number>;

function lists(): readonly (readonly [name: string, read: ReadPage])[] {
	return [
		...ORDERS.flatMap((order) =>
			Object.entries(FILTERS)
				.filter(([name]) => order === "updated" || ORDERED.includes(name))
				.map(([name, filter]) => {
					const conditions = conditionsOf(create(ConversationFilterSchema, filter));
					const query = { conditions, order, limit: PAGE, withRecords: false };
					const read: ReadPage = async (store) => (await store.listConversations(query)).length;
					return [`order ${order}, filter ${name}`, read] as const;
				}),
		),
		[
			"log of updates",
			async (store) => (await store.updates.list({ after: 0n, limit: PAGE, withRecords: false })).length,
		],
	];
}

const ABOUT = `time of a page of ${PAGE} conversations of one of ${OWNERS} owners, among ${CONVERSATIONS}, against that of a key without an owner`;

export const ownerLists: Benchmark = {
	name: "owner-lists",
	about: ABOUT,
	async run(settings, report) {
		await using folder = await DiskFolder.create(settings.folder);
		await fill(folder.database, report);
		return await measureOwnerLists(settings, "owner-lists", folder.database);
	},
};

/** The same with PostgreSQL. Its planner gets statistics, which autovacuum collects in production. */
export const postgresOwnerLists: Benchmark = {
	name: "postgres-owner-lists",
	about: `with PostgreSQL, ${ABOUT}`,
	async run(settings, report) {
		await using server = await DatabaseServer.start(settings.folder);
		const url = await server.create();
		await fill(url, report);
		await sqlOn(url, "VACUUM ANALYZE");
		return await measureOwnerLists(settings, "postgres-owner-lists", url);
	},
};

async function fill(database: string, report: Report): Promise<void> {
	await fillOwners(database, { conversations: CONVERSATIONS, rare: RARE_COUNT, owners: OWNERS }, report);
}

/** Compares the least times of both, which other programs on the machine disturb least. */
async function measureOwnerLists(settings: Settings, name: string, database: string): Promise<Figure[]> {
	const config = readConfig({ DATABASE_URL: database });
	await using store = await openStore(config.database, { error() {} }, { isSameRecord: () => Promise.resolve(false) });
	const [all, own] = [visibleStore(store, undefined), visibleStore(store, OWNER)];
	const figures: Figure[] = [];
	for (const [list, read] of lists()) {
		const timeOf = async (of: StoreReads): Promise<number> => {
			const start = performance.now();
			const found = await read(of);
			if (found !== PAGE) throw new Error(`${list}: the page has ${found} entries`);
			return performance.now() - start;
		};
		const times: [number, number][] = [];
		for (let n = 0; n < settings.rounds * PAGES; n += 1) times.push([await timeOf(all), await timeOf(own)]);
		const [least, leastOwn] = [Math.min(...times.map(([time]) => time)), Math.min(...times.map(([, time]) => time))];
		const medians = [median(times.map(([time]) => time)), median(times.map(([, time]) => time))] as const;
		figures.push({
			...{ name: `${name}: ${list}`, value: leastOwn / least, unit: "", target: { at: "most", value: 1.3 } },
			note: `${round(leastOwn)} against ${round(least)} ms; medians ${round(medians[1])} and ${round(medians[0])} ms`,
		});
	}
	return figures;
}
