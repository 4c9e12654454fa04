import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { z } from "zod";
import { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import {
	type ConversationFilterSchema,
	ConversationService,
	ListConversationsRequestSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { rpcPath } from "../../src/access/gate.ts";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, ratioFigure } from "../figures.ts";
import { RARE } from "../load/fill-plan.ts";
import { measurePairs, Target } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { grpcFrame } from "../requests.ts";
import { fill, noteOf, readerOf } from "./parts.ts";

const FEW = 1_000;
const MANY = 100_000;
/** Conversations that each filter for the rare ones finds, in both stores. */
const RARE_COUNT = 100;
const PAGE = 50;
/** A page is quick, and few at a time show what one costs. */
const CONCURRENCY = 4;
const HOUR = 3600n;

const FILTERS: Readonly<Record<string, MessageInitShape<typeof ConversationFilterSchema>>> = {
	none: {},
	"status, common": { executionStatus: ConversationExecutionStatus.IDLE },
	"status, rare": { executionStatus: ConversationExecutionStatus[RARE.status] },
	"agent kind, common": { agentKind: "ACPAgent" },
	"agent kind, rare": { agentKind: "Agent" },
	"model, rare": { model: RARE.model },
	"parent, rare": { parentConversationId: RARE.parentId },
	"tag, common": { tagKey: "team" },
	"tag key, rare": { tagKey: RARE.tagKey },
	"tag and value, rare": { tags: { [RARE.tagKey]: RARE.tagValue } },
	"created, rare": { createdFrom: { seconds: RARE.created }, createdTo: { seconds: RARE.created + HOUR } },
	"updated, rare": { updatedFrom: { seconds: RARE.updated }, updatedTo: { seconds: RARE.updated + HOUR } },
	"created, all": { createdFrom: { seconds: RARE.created } },
	"updated, all": { updatedFrom: { seconds: RARE.updated } },
	"title, common": { titleContains: "dependencies" },
	"title, rare": { titleContains: RARE.title },
	"status and tag, rare": {
		executionStatus: ConversationExecutionStatus[RARE.status],
		tags: { [RARE.tagKey]: RARE.tagValue },
	},
};

/** What a page costs when there are many conversations. */
export const list: Benchmark = {
	name: "list",
	about: `time per page of ${PAGE} summaries with ${MANY} conversations stored, against ${FEW}, for each filter`,
	async run(settings, report) {
		await using fewFolder = await DiskFolder.create(settings.folder);
		await using manyFolder = await DiskFolder.create(settings.folder);
		await fill(fewFolder, { kind: "variety", updates: FEW, rare: RARE_COUNT }, report);
		await fill(manyFolder, { kind: "variety", updates: MANY, rare: RARE_COUNT }, report);
		await using few = await Service.start({ folder: fewFolder.path, profile: undefined });
		await using many = await Service.start({ folder: manyFolder.path, profile: settings.profile });
		await using client = await Child.start("load/grpc.ts", z.unknown());
		const path = rpcPath(ConversationService.method.listConversations);
		const figures: Figure[] = [];
		for (const [name, filter] of Object.entries(FILTERS)) {
			report(`filter: ${name}`);
			const request = create(ListConversationsRequestSchema, { pageSize: PAGE, filter });
			const template = { request: grpcFrame(ListConversationsRequestSchema, request) };
			const side = async (service: Service, count: string) => {
				const { conversations } = await readerOf(service).listConversations(request);
				if (conversations.length !== PAGE) throw new Error(`the page has ${conversations.length} conversations`);
				const { pid, grpcPort: port, key } = service;
				return new Target(client, { name: count, pid, port, template, path, key });
			};
			const short = { ...settings, concurrency: CONCURRENCY, milliseconds: settings.milliseconds / 4 };
			const pairs = await measurePairs(short, await side(few, "few"), await side(many, "many"), report);
			const ratios = pairs.map(([before, after]) => before.rate / after.rate);
			figures.push(ratioFigure(`list, filter: ${name}`, ratios, { at: "most", value: 1.3 }, noteOf(pairs)));
		}
		return figures;
	},
};
