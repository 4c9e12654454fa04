import { SearchOrder } from "../../gen/conversations/v1/conversation_search_service_pb.js";
import { readConfig } from "../../src/config/config.ts";
import { UpdateParser } from "../../src/conversations/ingest/update-parser.ts";
import { SearchConversations } from "../../src/conversations/read/search.ts";
import { EventFormat } from "../../src/events/event-format.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { RecordVault } from "../../src/record/secrets/record-vault.ts";
import { TextIndexer } from "../../src/search/indexer.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { record } from "../../test/support/fixtures.ts";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, median, round } from "../figures.ts";
import { DatabaseServer } from "../processes/database-server.ts";
import { DiskFolder } from "../processes/service.ts";

const EVENTS = 1_000_000;
const CONVERSATIONS = 1_000;
const BATCH = 100;
/** Number of different words, of which the first are the most frequent. */
const WORDS = 30_000;
/** Every 20,000th message has the rare word, every third one the common one. */
const QUERIES = ["common", "philodendron", "common -philodendron", "w1*", "w1a*", '"common w1"'];
/** Milliseconds of a page of 20 hits. */
const AIM = 100;

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

/** Stores conversations with messages, commands and results of tools, and writes the index. */
async function fill(store: Store, report: (line: string) => void): Promise<void> {
	const word = () => `w${Math.floor(WORDS ** fraction()).toString(36)}`;
	const text = (length: number) => Array.from({ length }, word).join(" ");
	for (let n = 0; n < CONVERSATIONS; n++)
		await store.append(updates.fromRecord(format.fromJson(record({ id: idOf(n), title: text(5) }))));
	for (let at = 0; at < EVENTS; at += BATCH) {
		const batch = Array.from({ length: BATCH }, (_, n) => eventOf(at + n, text));
		const { batch: parsed } = events.parse(idOf((at / BATCH) % CONVERSATIONS), Buffer.from(JSON.stringify(batch)));
		await store.appendEvents(parsed);
	}
	const observer = { onFilled: () => undefined, onError: (error: unknown) => report(String(error)) };
	const indexer = new TextIndexer({ store, format: events, observer });
	const began = performance.now();
	while (await indexer.step());
	report(`  ${round((EVENTS / (performance.now() - began)) * 1000)} events indexed in a second`);
}

function eventOf(n: number, text: (length: number) => string): object {
	const common = { id: `e${n}`, timestamp: "2026-01-01T00:00:00" };
	const words = `${text(20 + (n % 120))}${n % 20_000 === 5 ? " philodendron" : ""}${n % 3 === 0 ? " common" : ""}`;
	const content = [{ type: "text", text: words }];
	if (n % 5 < 2) return { ...common, source: "agent", kind: "MessageEvent", llm_message: { content } };
	if (n % 5 === 2) return { ...common, source: "agent", kind: "ActionEvent", action: { command: text(6) } };
	return { ...common, source: "environment", kind: "ObservationEvent", observation: { is_error: false, content } };
}

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
			await fill(store, report);
			const reads = new SearchConversations(store, events, () => undefined);
			for (const query of QUERIES)
				for (const orderBy of [SearchOrder.NEWEST, SearchOrder.RELEVANCE]) {
					const times: number[] = [];
					let hits = 0;
					for (let round = 0; round < settings.rounds; round++) {
						const began = performance.now();
						hits = (await reads.search({ query, orderBy, pageSize: 20, pageToken: "" })).hits.length;
						times.push(performance.now() - began);
					}
					figures.push({
						name: `search, ${database.engine}, ${query}, ${orderBy === SearchOrder.NEWEST ? "newest" : "relevance"}`,
						value: median(times),
						unit: "ms",
						spread: [Math.min(...times), Math.max(...times)],
						target: { at: "most", value: AIM },
						note: `${hits} hits`,
					});
				}
		}
		return figures;
	},
};
