import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { z } from "zod";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ConversationService } from "../../gen/conversations/v1/conversation_service_pb.js";
import { KEY_HEADER, rpcPath } from "../../src/access/gate.ts";
import { median, round } from "../figures.ts";
import type { FillPlan } from "../load/fill-plan.ts";
import type { Measurement, Side } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { type DiskFolder, databasePath, type Service } from "../processes/service.ts";
import { type BodyName, ingestRequest, webhookRequest } from "../requests.ts";

/** What a yardstick server announces. */
export const listening = z.object({ port: z.int() });

/** What to fill a database with: a plan without its place. */
type Contents = FillPlan extends infer Plan ? (Plan extends FillPlan ? Omit<Plan, "path"> : never) : never;

/** Fills the database in a folder. */
export async function fill(folder: DiskFolder, contents: Contents, report: (line: string) => void): Promise<void> {
	await using filler = await Child.start("load/fill.ts", z.unknown());
	const start = performance.now();
	await filler.ask({ ...contents, path: databasePath(folder.path) }, z.unknown());
	report(`  stored ${contents.updates} updates in ${round((performance.now() - start) / 1000)} s`);
}

/** Webhook ingest of a body by a service. */
export async function webhookSide(body: BodyName, service: Service): Promise<Side> {
	const template = await webhookRequest(body, service.key);
	return { name: "service", pid: service.pid, port: service.httpPort, template };
}

/** gRPC ingest of a body by a service. */
export async function grpcSide(body: BodyName, service: Service): Promise<Side> {
	const path = rpcPath(ConversationIngestService.method.ingestConversation);
	const template = await ingestRequest(body);
	return { name: "service", pid: service.pid, port: service.grpcPort, template, path, key: service.key };
}

/** A client of a service's reads, to see that what is measured is what is meant. */
export function readerOf(service: Service) {
	const transport = createConnectTransport({
		baseUrl: `http://127.0.0.1:${service.httpPort}`,
		httpVersion: "1.1",
		interceptors: [
			(next) => (request) => {
				request.header.set(KEY_HEADER, service.key);
				return next(request);
			},
		],
	});
	return createClient(ConversationService, transport);
}

/** Medians of both servers' rates and costs. */
export function noteOf(pairs: readonly (readonly [Measurement, Measurement])[]): string {
	const of = (index: 0 | 1) => {
		const rate = median(pairs.map((pair) => pair[index].rate));
		const cost = median(pairs.map((pair) => pair[index].cost));
		return `${round(rate)}/s (${round(cost)} ms CPU each)`;
	};
	return `${of(1)} against ${of(0)}`;
}
