import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { z } from "zod";
import { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import {
	type ConversationFilterSchema,
	ConversationService,
	ListConversationsRequestSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { rpcPath } from "../../test/support/clients.ts";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, ratioFigure } from "../figures.ts";
import { RARE } from "../load/fill-plan.ts";
import { measurePairs, ServerTarget } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DatabaseServer, sqlOn } from "../processes/database-server.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { grpcFrame } from "../requests.ts";
import type { Settings } from "../settings.ts";
import { fillVariety, noteOf, type Report, readerOf } from "./parts.ts";

const FEW = 1_000;
const MANY = 100_000;
/** Number of conversations that each filter for the rare ones finds, in both stores. */
const RARE_COUNT = 100;
const PAGE = 50;
/** A page is quick. A low concurrency shows its cost. */
const CONCURRENCY = 4;
const HOUR = 3600n;

type Filter = Exclude<MessageInitShape<typeof ConversationFilterSchema>, { readonly $typeName: string }>;

const [CREATED, UPDATED] = [BigInt(RARE.created), BigInt(RARE.updated)];
const RARE_STATUS = ConversationExecutionStatus.PAUSED;
const COMMON_STATUS = ConversationExecutionStatus.IDLE;

/** Filters that find exactly the rare conversations. */
const RARE_FILTERS: Readonly<Record<string, Filter>> = {
	"agent kind": { agentKind: "Agent" },
	model: { model: RARE.model },
	parent: { parentConversationId: RARE.parentId },
	"tag key": { tagKey: RARE.tagKey },
	"tag and value": { tags: { [RARE.tagKey]: RARE.tagValue } },
	created: { createdFrom: { seconds: CREATED }, createdTo: { seconds: CREATED + HOUR } },
	updated: { updatedFrom: { seconds: UPDATED }, updatedTo: { seconds: UPDATED + HOUR } },
	title: { titleContains: RARE.title },
};
/** Filters that find most conversations. */
const COMMON_FILTERS: Readonly<Record<string, Filter>> = {
	"agent kind": { agentKind: "ACPAgent" },
	"tag key": { tagKey: "team" },
	created: { createdFrom: { seconds: CREATED } },
	updated: { updatedFrom: { seconds: UPDATED } },
	title: { titleContains: "dependencies" },
};
/** Combinations of filters, for which there is no target. */
const COMBINATIONS: Readonly<Record<string, Filter>> = {
	"model and tag, rare": { ...RARE_FILTERS.model, ...RARE_FILTERS["tag and value"] },
	"parent, title and created, rare": { ...RARE_FILTERS.parent, ...RARE_FILTERS.title, ...RARE_FILTERS.created },
	"agent kind and tag, common": { ...COMMON_FILTERS["agent kind"], ...COMMON_FILTERS["tag key"] },
	"agent kind, common, and title, rare: none": { ...COMMON_FILTERS["agent kind"], ...RARE_FILTERS.title },
	"tag, common, and model, rare: none": { ...COMMON_FILTERS["tag key"], ...RARE_FILTERS.model },
};

interface Measured {
	readonly name: string;
	readonly filter: Filter;
	/** Number of conversations on the first page. */
	readonly found: number;
	/** Whether there is a target. Otherwise the cost is only printed. */
	readonly bounded: boolean;
}

function measured(): Measured[] {
	const single = (name: string, filter: Filter): Measured => ({ name, filter, found: PAGE, bounded: true });
	const withStatus = (name: string, filter: Filter, executionStatus: ConversationExecutionStatus, found: number) => {
		const label = `${name}, and ${executionStatus === RARE_STATUS ? "the rare" : "the common"} status`;
		return {
			name: found === 0 ? `${label}: none` : label,
			filter: { ...filter, executionStatus },
			found,
			bounded: true,
		};
	};
	return [
		single("none", {}),
		single("status, common", { executionStatus: COMMON_STATUS }),
		single("status, rare", { executionStatus: RARE_STATUS }),
		...Object.entries(COMMON_FILTERS).flatMap(([name, filter]) => [
			single(`${name}, common`, filter),
			withStatus(`${name}, common`, filter, COMMON_STATUS, PAGE),
		]),
		...Object.entries(RARE_FILTERS).flatMap(([name, filter]) => [
			single(`${name}, rare`, filter),
			withStatus(`${name}, rare`, filter, RARE_STATUS, PAGE),
			withStatus(`${name}, rare`, filter, COMMON_STATUS, 0),
		]),
		...Object.entries(COMBINATIONS).map(([name, filter]) => ({
			name,
			filter,
			found: name.endsWith("none") ? 0 : PAGE,
			bounded: false,
		})),
	];
}

const ABOUT = `time per page of ${PAGE} summaries with ${MANY} conversations stored, against ${FEW}, for each filter`;

/** Cost of a page when many conversations are stored. */
export const list: Benchmark = {
	name: "list",
	about: ABOUT,
	async run(settings, report) {
		await using fewFolder = await DiskFolder.create(settings.folder);
		await using manyFolder = await DiskFolder.create(settings.folder);
		await fillVariety(fewFolder.database, FEW, RARE_COUNT, report);
		await fillVariety(manyFolder.database, MANY, RARE_COUNT, report);
		const databases = { few: fewFolder.database, many: manyFolder.database };
		return await measureLists(settings, { name: "list", most: 1.3, ...databases }, report);
	},
};

/** The same with PostgreSQL. Its planner gets statistics, which autovacuum collects in production. */
export const postgresList: Benchmark = {
	name: "postgres-list",
	about: `with PostgreSQL, ${ABOUT}`,
	async run(settings, report) {
		await using server = await DatabaseServer.start(settings.folder);
		const filled = async (conversations: number): Promise<string> => {
			const url = await server.create();
			await fillVariety(url, conversations, RARE_COUNT, report);
			await sqlOn(url, "VACUUM ANALYZE");
			return url;
		};
		const databases = { few: await filled(FEW), many: await filled(MANY) };
		return await measureLists(settings, { name: "postgres-list", most: 1.5, ...databases }, report);
	},
};

/** Two databases, with few and with many conversations, and the maximum ratio of the times that a page takes. */
interface Compared {
	readonly name: string;
	readonly few: string;
	readonly many: string;
	readonly most: number;
}

async function measureLists(settings: Settings, compared: Compared, report: Report): Promise<Figure[]> {
	await using few = await Service.start({ database: compared.few });
	await using many = await Service.start({ database: compared.many, profile: settings.profile });
	await using client = await Child.start("load/grpc.ts", z.unknown());
	const path = rpcPath(ConversationService.method.listConversations);
	const short = { ...settings, concurrency: CONCURRENCY, milliseconds: settings.milliseconds / 8 };
	const figures: Figure[] = [];
	for (const { name, filter, found, bounded } of measured()) {
		report(`filter: ${name}`);
		const request = create(ListConversationsRequestSchema, { pageSize: PAGE, filter });
		const template = { request: grpcFrame(ListConversationsRequestSchema, request) };
		const targetFor = async (service: Service, count: string) => {
			const { conversations } = await readerOf(service).listConversations(request);
			if (conversations.length !== found) throw new Error(`the page has ${conversations.length} conversations`);
			const { pid, grpcPort: port, key } = service;
			return new ServerTarget(client, { name: count, pid, port, template, path, key });
		};
		const pairs = await measurePairs(short, await targetFor(few, "few"), await targetFor(many, "many"), report);
		const ratios = pairs.map(([before, after]) => before.rate / after.rate);
		const goal = bounded ? ({ at: "most", value: compared.most } as const) : undefined;
		figures.push(ratioFigure(`${compared.name}, filter: ${name}`, ratios, goal, noteOf(pairs)));
	}
	return figures;
}
