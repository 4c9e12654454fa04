import { readFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { create } from "@bufbuild/protobuf";
import { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import { SearchOrder } from "../../gen/conversations/v1/conversation_search_service_pb.js";
import { ConversationFilterSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import { type Config, readConfig } from "../../src/config/config.ts";
import { type SearchRequest, searchConversations } from "../../src/conversations/read/search.ts";
import { visibleStore } from "../../src/conversations/read/visible-store.ts";
import { EventFormat } from "../../src/events/event-format.ts";
import { UpdateParser } from "../../src/intake/record-intake.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { RecordVault } from "../../src/record/secrets/record-vault.ts";
import { TextIndexer } from "../../src/search/indexer.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { record } from "../../test/support/fixtures.ts";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, median, round } from "../figures.ts";
import { DatabaseServer, sqlOn } from "../processes/database-server.ts";
import { DiskFolder } from "../processes/service.ts";

const EVENTS = 1_000_000;
const CONVERSATIONS = 1_000;
/** Each tenth conversation has this owner, and another tenth this status. */
const OWNER = "owner";
const STATUS = ConversationExecutionStatus.FINISHED;
const BATCH = 100;
/** Texts are parts of these documents, with a name in each that only some others have. */
const DOCUMENTS = [
	"api",
	"architecture",
	"clients",
	"completeness",
	"console",
	"events",
	"operations",
	"postgres",
	"record",
];
/** Number of different names, of which the first are the most frequent. */
const NAMES = 30_000;
/** Milliseconds of a page of 20 hits. */
const AIM = 100;
/** Maximum size of the index as a share of the texts that it covers. */
const SIZE_AIM = 1 / 3;

interface Search {
	readonly query: string;
	readonly isOfStatus?: boolean;
	readonly isOfOwner?: boolean;
	readonly pageSize?: number;
}

/**
 * Every third message has the word `commonplace`, 48 messages in as many conversations `philodendron`, and none `quagmire`.
 * Very many words begin with `re` and `con`. The words of the second phrase are in most messages, but never in this order.
 */
const SEARCHES: readonly Search[] = [
	{ query: "commonplace" },
	{ query: "philodendron" },
	{ query: "quagmire" },
	{ query: "the -commonplace" },
	{ query: "re*" },
	{ query: "con*" },
	{ query: '"the service"' },
	{ query: '"the of a"' },
	{ query: "commonplace", isOfStatus: true },
	{ query: "commonplace", isOfOwner: true },
	{ query: "philodendron", isOfOwner: true },
	{ query: "commonplace", pageSize: 1_000 },
];

const format = new RecordFormat();
const events = new EventFormat(format, [], "UTC");
const updates = new UpdateParser(format, new RecordVault(format, []));
const idOf = (n: number) => `00000000-0000-4000-8000-${n.toString(16).padStart(12, "0")}`;

let seed = 1;

/** Returns numbers from 0 to 1 that are the same in each run. */
function fraction(): number {
	seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
	return seed / 2 ** 31;
}

/** Stores conversations with messages, commands and results of tools. Returns the bytes of the texts that are indexed. */
export async function fill(store: Store): Promise<number> {
	seed = 1;
	let bytes = 0;
	const documents = DOCUMENTS.map((name) => readFileSync(new URL(`../../docs/${name}.md`, import.meta.url), "utf8"));
	const words = documents.join(" ").split(/\s+/);
	const text = (length: number) => {
		const start = Math.floor(fraction() * (words.length - length));
		return [...words.slice(start, start + length), `n${Math.floor(NAMES ** fraction()).toString(36)}`].join(" ");
	};
	for (let n = 0; n < CONVERSATIONS; n++) {
		const status = n % 10 === 1 ? { execution_status: "finished" } : {};
		const update = updates.fromRecord(format.fromJson(record({ id: idOf(n), title: text(5), ...status })));
		await store.append(n % 10 === 2 ? { ...update, poster: { sender: OWNER, owner: OWNER } } : update);
	}
	for (let at = 0; at < EVENTS; at += BATCH) {
		const batch = Array.from({ length: BATCH }, (_, n) => eventOf(at + n, text));
		for (const { covered } of batch) bytes += covered;
		const body = Buffer.from(JSON.stringify(batch.map(({ event }) => event)));
		await store.appendEvents(events.parse(idOf((at / BATCH) % CONVERSATIONS), body).batch);
	}
	return bytes;
}

function eventOf(n: number, text: (length: number) => string): { event: object; covered: number } {
	const common = { id: `e${n}`, timestamp: "2026-01-01T00:00:00" };
	const words = `${text(20 + (n % 120))}${n % 21_035 === 5 ? " philodendron" : ""}${n % 3 === 0 ? " commonplace" : ""}`;
	const content = [{ type: "text", text: words }];
	if (n % 5 < 2) {
		const event = { ...common, source: "agent", kind: "MessageEvent", llm_message: { content } };
		return { event, covered: Buffer.byteLength(words) };
	}
	if (n % 5 === 2) {
		const command = text(6);
		return {
			event: { ...common, source: "agent", kind: "ActionEvent", action: { command } },
			covered: Buffer.byteLength(command),
		};
	}
	const observation = { is_error: false, content };
	return { event: { ...common, source: "environment", kind: "ObservationEvent", observation }, covered: 0 };
}

/** Writes the index. */
export async function index(store: Store, report: (line: string) => void): Promise<void> {
	await store.countConversations({ conditions: [], group: undefined, limit: 1 });
	const indexer = new TextIndexer({ store, format: events });
	const began = performance.now();
	const { user, system } = process.cpuUsage();
	while (await indexer.step());
	const used = process.cpuUsage();
	const processor = used.user - user + used.system - system;
	await indexer.release();
	report(
		`  ${round((EVENTS / (performance.now() - began)) * 1000)} events indexed in a second, ` +
			`${round(processor / EVENTS)} µs of the service's processor time an event`,
	);
}

/** Measures the searches. */
export async function measure(store: Store, engine: string, rounds: number): Promise<Figure[]> {
	const figures: Figure[] = [];
	for (const { query, isOfStatus = false, isOfOwner = false, pageSize = 20 } of SEARCHES)
		for (const orderBy of [SearchOrder.NEWEST, SearchOrder.RELEVANCE]) {
			const searched = {
				store: visibleStore(store, isOfOwner ? OWNER : undefined),
				format: events,
				onUnreadable: () => undefined,
			};
			const filter = isOfStatus ? create(ConversationFilterSchema, { executionStatus: STATUS }) : undefined;
			const request: SearchRequest = { query, filter, orderBy, pageSize, pageToken: "" };
			const times: number[] = [];
			let hits = 0;
			for (let n = 0; n < rounds; n++) {
				const began = performance.now();
				hits = (await searchConversations(searched, request)).hits.length;
				times.push(performance.now() - began);
			}
			const of = `${isOfStatus ? ", a tenth by status" : ""}${isOfOwner ? ", a tenth by owner" : ""}`;
			figures.push({
				name: `search, ${engine}, ${query}${of}, ${orderBy === SearchOrder.NEWEST ? "newest" : "relevance"}`,
				value: median(times),
				unit: "ms",
				spread: [Math.min(...times), Math.max(...times)],
				target: pageSize === 20 ? { at: "most", value: AIM } : undefined,
				note: `${hits} hits`,
			});
		}
	return figures;
}

/** Returns the bytes of the index on disk. */
export async function sizeOf(url: string, database: Config["database"]): Promise<number> {
	if (database.engine === "postgres") return Number((await sqlOn(url, "VACUUM ANALYZE", SIZE))[0]?.size);
	const file = new DatabaseSync(database.path, { readOnly: true });
	try {
		return Number(
			file.prepare("SELECT sum(pgsize) AS size FROM dbstat WHERE name LIKE 'search\\_%' ESCAPE '\\'").get()?.size,
		);
	} finally {
		file.close();
	}
}

const SIZE = `
	SELECT pg_total_relation_size('conversation_updates.search_texts') AS size
`;

export const search: Benchmark = {
	name: "search",
	about: `time of a page of 20 hits over ${EVENTS} events of ${CONVERSATIONS} conversations, with SQLite and PostgreSQL`,
	async run(settings, report) {
		await using folder = await DiskFolder.create(settings.folder);
		await using server = await DatabaseServer.start(settings.folder);
		const figures: Figure[] = [];
		for (const url of [folder.database, await server.create()]) {
			const { database } = readConfig({ DATABASE_URL: url, ACCESS_KEYS: "bench:0123456789abcdef" });
			await using store = await openStore(database, { error: (fields) => report(JSON.stringify(fields)) }, {});
			const bytes = await fill(store);
			await index(store, report);
			figures.push({
				name: `search, ${database.engine}, index against texts`,
				value: (await sizeOf(url, database)) / bytes,
				unit: "",
				target: { at: "most", value: SIZE_AIM },
				note: `${round(bytes / 2 ** 20)} MiB of texts`,
			});
			figures.push(...(await measure(store, database.engine, settings.rounds)));
		}
		return figures;
	},
};
