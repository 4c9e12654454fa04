import { randomBytes } from "node:crypto";
import { z } from "zod";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { readClient, rpcPath } from "../../test/support/clients.ts";
import { median, round } from "../figures.ts";
import { type FillPlan, keyOfOwner } from "../load/fill-plan.ts";
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

/** Number of conversations that are posted in one step, which has a time limit. */
const FILL_STEP = 10_000;

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
		await fillAll({ port, key, conversations, rare });
	});
}

/** The same, with conversations that belong to owners in turn. Their names are {@link ownerName}. */
export async function fillOwners(
	database: string,
	{ conversations, rare, owners }: { readonly conversations: number; readonly rare: number; readonly owners: number },
	report: Report,
): Promise<void> {
	const key = randomBytes(16).toString("hex");
	const entries = Array.from({ length: owners }, (_, owner) => {
		const name = ownerName(owner);
		return `${name}:${keyOfOwner(key, owner)}:ingest@${name}`;
	});
	const environment = { ACCESS_KEYS: entries.join() };
	const what = `${conversations} updates of ${owners} owners`;
	await filled(
		database,
		what,
		report,
		({ httpPort: port }) => fillAll({ port, key, conversations, rare, owners }),
		environment,
	);
}

/** Returns the name of an owner, which is also that of its sender. */
export function ownerName(owner: number): string {
	return `owner-${owner}`;
}

async function fillAll(plan: FillPlan): Promise<void> {
	await using filler = await Child.start("load/fill.ts", z.unknown());
	for (let first = 0; first < plan.conversations; first += FILL_STEP) {
		const end = Math.min(first + FILL_STEP, plan.conversations);
		await filler.ask({ ...plan, first, end } satisfies FillPlan, z.unknown());
	}
}

async function filled(
	database: string,
	what: string,
	report: Report,
	fill: (service: Service) => Promise<void>,
	environment: Readonly<Record<string, string>> = {},
): Promise<void> {
	const start = performance.now();
	await using service = await Service.start({ database, environment });
	await fill(service);
	report(`  stored ${what} in ${round((performance.now() - start) / 1000)} s`);
}

/** Returns the load of posting a body to a service's webhook. */
export async function webhookLoad(
	body: BodyName,
	service: Pick<Service, "pid" | "httpPort" | "key">,
): Promise<ServerUnderLoad> {
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
