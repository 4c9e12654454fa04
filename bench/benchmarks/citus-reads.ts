import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { allTables } from "../../src/store/tables.ts";
import { citusPrograms } from "../../test/store/citus/build.ts";
import { openStore, sqlOn } from "../../test/store/postgres/databases.ts";
import { ownFolder, PostgresServer } from "../../test/store/postgres/server.ts";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, median, quantile, round } from "../figures.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { DURABLE, startCitus } from "./citus.ts";
import { fillEvents, fillVariety, type Report, readerOf } from "./parts.ts";

const CONVERSATIONS = 100_000;
const RARE_COUNT = 100;
/** Batches of five events each. */
const BATCHES = 4_000;
/** Each conversation has five rows of the ledger, evenly over a year, of five calls each: 2,500,000 calls. */
const QUARTERS_EACH = 5;
/** 2026-01-01, and a year after it, in quarters of an hour since the Unix epoch. */
const FIRST = Date.UTC(2026, 0, 1) / 900_000;
const YEAR = 365 * 96;
const WORKERS = 2;
/** Number of reads of a kind for each round. */
const READS = 8;
const PAGE = 50;
/** Number of updates that a watch reads when it resumes. */
const MISSED = 100;

/** The usage of the conversations that are stored. */
const USAGE = [
	"DELETE FROM conversation_updates.usage_ledger",
	`INSERT INTO conversation_updates.usage_ledger (conversation, quarter, model, usage_id, agent_kind, cost, prompt_tokens,
		completion_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, calls)
	SELECT c.conversation_id, ${FIRST} + c.sequence * ${YEAR - QUARTERS_EACH} / ${CONVERSATIONS} + q, 'model ' || c.sequence % 10,
		CASE WHEN c.sequence % 10 = 0 AND q = 1 THEN 'condenser' ELSE 'agent' END, c.agent_kind, 12345678, 20000, 900, 15000,
		2000, 100, 5
	FROM conversation_updates.conversations c CROSS JOIN generate_series(0, ${QUARTERS_EACH - 1}) q
	JOIN conversation_updates.usage_conversations k ON k.id = c.conversation_id`,
	"DELETE FROM conversation_updates.usage_sums",
	`INSERT INTO conversation_updates.usage_sums (length, start, model, usage_id, agent_kind, sender, owner, cost, prompt_tokens,
		completion_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, calls)
	SELECT p, l.quarter - l.quarter % p, l.model, l.usage_id, l.agent_kind, k.sender, k.owner, sum(l.cost), sum(l.prompt_tokens),
		sum(l.completion_tokens), sum(l.cache_read_tokens), sum(l.cache_write_tokens), sum(l.reasoning_tokens), sum(l.calls)
	FROM conversation_updates.usage_ledger l JOIN conversation_updates.usage_conversations k ON k.id = l.conversation
	CROSS JOIN unnest(ARRAY[1, 4, 96, ${2 ** 32}]) p GROUP BY 1, 2, 3, 4, 5, 6, 7`,
	"DELETE FROM conversation_updates.usage_days",
	`INSERT INTO conversation_updates.usage_days (day, model, conversation, usage_id, agent_kind)
	SELECT DISTINCT (quarter - quarter % 96) / 96, model, conversation, usage_id, agent_kind FROM conversation_updates.usage_ledger`,
];

const JUNE = "from=2026-06-01T00:00:00Z&to=2026-07-01T00:00:00Z";

interface Place {
	readonly id: string;
	readonly deepToken: string;
	readonly newest: bigint;
}

/** Paths of reads, by what is measured. */
const READ: Readonly<Record<string, (place: Place) => string>> = {
	get: ({ id }) => `conversations/${id}`,
	"list, first page": () => `conversations?page_size=${PAGE}`,
	"list, a later page": ({ deepToken }) =>
		`conversations?page_size=${PAGE}&page_token=${encodeURIComponent(deepToken)}`,
	"list by a common tag and status": () => `conversations?page_size=${PAGE}&tag=team:team3&execution_status=idle`,
	"list by a rare model": () => `conversations?page_size=${PAGE}&model=rare-model`,
	"list by a part of the title, rare": () => `conversations?page_size=${PAGE}&title_contains=philodendron`,
	"counts by model": () => "conversations/counts?group_by=model",
	"counts by model with a filter": () => "conversations/counts?group_by=model&tag=team:team3",
	"search, rare": () => "search?query=philodendron",
	"search, common": () => "search?query=dependencies",
	"usage of 30 days by model": () => `usage?group_by=model&${JUNE}`,
	"usage of 30 days by tag": () => `usage?group_by=tag:team&${JUNE}`,
	"usage of 30 days by conversation": () => `usage?group_by=conversation&${JUNE}`,
};

/** Reads from Citus beside one PostgreSQL server with the same data. */
export const citusReads: Benchmark = {
	name: "citus-reads",
	about: `reads of ${CONVERSATIONS} conversations with 2,500,000 calls from Citus with ${WORKERS} workers, beside one PostgreSQL server of the same release`,
	async run(settings, report) {
		await using folder = await DiskFolder.create(settings.folder);
		await using server = await PostgresServer.create(join(folder.path, "server"), await citusPrograms());
		server.configure(DURABLE);
		await server.start();
		const one = server.url("?sslmode=disable");
		await fillVariety(one, CONVERSATIONS, RARE_COUNT, report);
		await fillEvents(one, BATCHES, report);
		await indexed(one, report);
		for (const statement of USAGE) await sqlOn(one, statement);
		await sqlOn(one, "VACUUM ANALYZE");
		await using cluster = await startCitus(folder.path, WORKERS);
		const spread = cluster.coordinator.url("?sslmode=disable");
		await copy(one, spread, join(folder.path, "copy"), report);
		await using plain = await Service.start({ database: one });
		await using citus = await Service.start({ database: spread, profile: settings.profile });
		const place = await placeOf(plain);
		const figures: Figure[] = [];
		const compare = async (name: string, read: (service: Service) => Promise<unknown>) => {
			const times: [number, number][] = [];
			for (let n = -2; n < settings.rounds * READS; n++) {
				const pair: [number, number] = [await timeOf(() => read(plain)), await timeOf(() => read(citus))];
				if (n >= 0) times.push(pair);
			}
			const [before, after] = [times.map(([time]) => time), times.map(([, time]) => time)];
			const note = `${timesOf(after)} against ${timesOf(before)}`;
			report(`  ${name}: ${round(median(after) / median(before))}, ${note}`);
			const target = { at: "most", value: 2 } as const;
			figures.push({ name: `citus-reads: ${name}`, value: median(after) / median(before), unit: "", target, note });
		};
		for (const [name, path] of Object.entries(READ)) {
			const [expected, found] = [await read(plain, path(place)), await read(citus, path(place))];
			if (!name.startsWith("list, a later") && sorted(found) !== sorted(expected))
				throw new Error(`${name}: the answers differ: ${expected.slice(0, 500)}, ${found.slice(0, 500)}`);
			await compare(name, (service) => read(service, path(place)));
		}
		await compare(`watch that resumes after ${MISSED} updates`, (service) => resume(service, place.newest));
		return figures;
	},
};

function timesOf(times: readonly number[]): string {
	return `${round(median(times))} ms (99 %: ${round(quantile(times, 0.99))} ms)`;
}

/** Returns the letters of an answer in order: rows of equal rank may be in another order. */
function sorted(answer: string): string {
	return [...answer].sort().join("");
}

async function timeOf(read: () => Promise<unknown>): Promise<number> {
	const start = performance.now();
	await read();
	return performance.now() - start;
}

async function read({ httpPort, key }: Service, path: string): Promise<string> {
	const response = await fetch(`http://127.0.0.1:${httpPort}/api/v1/${path}`, { headers: { "X-Access-Token": key } });
	const body = await response.text();
	if (response.status !== 200) throw new Error(`${path}: ${response.status}: ${body}`);
	return body;
}

/** Reads the updates that a watch has missed. */
async function resume(service: Service, newest: bigint): Promise<void> {
	const over = new AbortController();
	const start = { case: "afterSequence", value: newest - BigInt(MISSED) } as const;
	let read = 0;
	for await (const _ of readerOf(service).watchConversationUpdates({ start }, { signal: over.signal }))
		if (++read === MISSED) break;
	over.abort();
}

async function placeOf(service: Service): Promise<Place> {
	const reader = readerOf(service);
	let pageToken = "";
	// The last page but one of 20,000 conversations.
	for (let n = 0; n < 20; n++)
		({ nextPageToken: pageToken } = await reader.listConversations({ pageSize: 1_000, pageToken }));
	const { conversations } = await reader.listConversations({ pageSize: 1, pageToken });
	const id = conversations[0]?.summary?.id;
	if (id === undefined) throw new Error("there are no conversations");
	return { id, deepToken: pageToken, newest: BigInt(CONVERSATIONS) };
}

/** Waits until the words of all texts are indexed and all views have followed. */
async function indexed(url: string, report: Report): Promise<void> {
	await using _ = await Service.start({ database: url });
	const start = performance.now();
	for (;;) {
		const [row] = await sqlOn(
			url,
			`SELECT s.events >= p.newest_event
				AND NOT EXISTS (
					SELECT 1 FROM conversation_updates.views v WHERE v.updates < p.newest_update OR v.events < p.newest_event
				) AS done
			FROM conversation_updates.search_progress s, conversation_updates.state p`,
		);
		if (row?.done === true) break;
		await new Promise((resolve) => setTimeout(resolve, 200));
	}
	report(`  indexed in ${round((performance.now() - start) / 1000)} s`);
}

/** Copies all tables from one database to Citus. Files of the servers are the way. */
async function copy(from: string, to: string, folder: string, report: Report): Promise<void> {
	const start = performance.now();
	await (await openStore(to, { distribute: true })).close();
	mkdirSync(folder);
	ownFolder(folder);
	for (const { name, columns } of allTables("postgres")) {
		const table = `conversation_updates.${name}`;
		const list = Object.keys(columns).join();
		const file = join(folder, name);
		await sqlOn(from, `COPY ${table} (${list}) TO '${file}'`);
		await sqlOn(to, `DELETE FROM ${table}`);
		await sqlOn(to, `COPY ${table} (${list}) FROM '${file}'`);
	}
	await sqlOn(to, "VACUUM ANALYZE");
	report(`  copied in ${round((performance.now() - start) / 1000)} s`);
}
