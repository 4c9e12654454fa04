import { z } from "zod";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { readClient, rpcPath } from "../../test/support/clients.ts";
import { median, round } from "../figures.ts";
import type { FillPlan } from "../load/fill-plan.ts";
import { type Measurement, ServerTarget, type ServerUnderLoad } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { Service } from "../processes/service.ts";
import { type BodyName, eventsRequest, ingestRequest, webhookRequest } from "../requests.ts";

/** Prints a line of progress. */
export type Report = (line: string) => void;

/** Maximum time for filling a database, in milliseconds. */
const FILL_TIMEOUT = 240_000;

/** Announcement of a yardstick server. */
export const listening = z.object({ port: z.int() });

/** Maximum number of requests under way while a database is filled. */
const FILL_CONCURRENCY = 256;

/** Fills a database with the first updates of a load, for `CONVERSATIONS` conversations in turn. */
export async function fillHistory(database: string, body: BodyName, updates: number, report: Report): Promise<void> {
	await filled(database, `${updates} updates`, report, async (service) => {
		await using client = await Child.start("load/http.ts", z.unknown());
		const target = new ServerTarget(client, await webhookLoad(body, service));
		await target.load({
			concurrency: Math.min(FILL_CONCURRENCY, updates),
			milliseconds: FILL_TIMEOUT,
			requests: updates,
		});
	});
}

/** Fills a database with the first batches of a load of five plain events each. */
export async function fillEvents(database: string, batches: number, report: Report): Promise<void> {
	await filled(database, `${batches} batches of events`, report, async (service) => {
		await using client = await Child.start("load/http.ts", z.unknown());
		const template = await eventsRequest("plain", service.key);
		const target = new ServerTarget(client, { name: "service", pid: service.pid, port: service.httpPort, template });
		await target.load({ concurrency: FILL_CONCURRENCY, milliseconds: FILL_TIMEOUT, requests: batches });
	});
}

/** Fills a database with conversations, of which `rare` have the properties of `RARE`. */
export async function fillVariety(
	database: string,
	conversations: number,
	rare: number,
	report: Report,
): Promise<void> {
	await filled(database, `${conversations} updates`, report, async ({ httpPort: port, key }) => {
		await using filler = await Child.start("load/fill.ts", z.unknown());
		await filler.ask({ port, key, conversations, rare } satisfies FillPlan, z.unknown());
	});
}

async function filled(
	database: string,
	what: string,
	report: Report,
	fill: (service: Service) => Promise<void>,
): Promise<void> {
	const start = performance.now();
	await using service = await Service.start({ database });
	await fill(service);
	report(`  stored ${what} in ${round((performance.now() - start) / 1000)} s`);
}

/** Returns the load of posting a body to a service's webhook. */
export async function webhookLoad(body: BodyName, service: Service): Promise<ServerUnderLoad> {
	const template = await webhookRequest(body, service.key);
	return { name: "service", pid: service.pid, port: service.httpPort, template };
}

/** Returns the load of ingesting a body over gRPC. */
export async function grpcLoad(body: BodyName, service: Service): Promise<ServerUnderLoad> {
	const path = rpcPath(ConversationIngestService.method.ingestConversation);
	const template = await ingestRequest(body);
	return { name: "service", pid: service.pid, port: service.grpcPort, template, path, key: service.key };
}

/** Returns a client for reading from a service, to check that the benchmark measures the intended operation. */
export function readerOf({ httpPort, grpcPort, key }: Service) {
	return readClient({ http: `http://127.0.0.1:${httpPort}`, grpc: `127.0.0.1:${grpcPort}` }, "connect", key);
}

/** Returns the medians of both servers' rates and costs as text. */
export function noteOf(pairs: readonly (readonly [Measurement, Measurement])[]): string {
	const of = (index: 0 | 1) => {
		const rate = median(pairs.map((pair) => pair[index].rate));
		const cost = median(pairs.map((pair) => pair[index].cost));
		return `${round(rate)}/s (${round(cost)} ms CPU each)`;
	};
	return `${of(1)} against ${of(0)}`;
}
