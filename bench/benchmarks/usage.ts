import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { postgresSession } from "../../src/store/postgres/session.ts";
import { type Query, Spread } from "../../src/store/postgres/transaction.ts";
import { sqliteSession } from "../../src/store/sqlite/session.ts";
import { Statements } from "../../src/store/sqlite/sql.ts";
import { reportUsage, type UsageQuery } from "../../src/store/usage-report.ts";
import { periodsOf, type Step } from "../../src/usage/periods.ts";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, median, round } from "../figures.ts";
import { connect, DatabaseServer, sqlOn } from "../processes/database-server.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import type { Settings } from "../settings.ts";
import type { Report } from "./parts.ts";

/** Conversations with usage, each with 25 calls in five quarters of an hour, evenly over a year. */
const CONVERSATIONS = 200_000;
const QUARTERS_EACH = 5;
/** 2026-01-01, and a year after it, in quarters of an hour since the Unix epoch. */
const FIRST = Date.UTC(2026, 0, 1) / 900_000;
const YEAR = 365 * 96;
/** Conversations that are counted. */
const COUNTED = 300_000;
/** The yardstick: the same with a hundredth of the conversations. */
const FEW = 100;

/** SQL of both engines that fills the tables as ingest would write them. `n` is a table of numbers. */
function fillSql(
	prefix: string,
	share: number,
	uuid: (n: string) => string,
	numbers: (count: number) => string,
): string[] {
	const conversations = Math.round(CONVERSATIONS / share);
	const counted = Math.round(COUNTED / share);
	return [
		`INSERT INTO ${prefix}usage_conversations (${prefix === "" ? "id, conversation_id" : "id"}, sender, owner, is_kept, ledger)
		SELECT ${prefix === "" ? "n, " : ""}${uuid("n")}, 'sender ' || n % 5, 'owner ' || n % 5, FALSE, '{"times":[],"copied":[],"calls":[],"costs":[],"steps":[],"lives":[]}'
		FROM (${numbers(conversations)}) s`,
		`INSERT INTO ${prefix}usage_ledger (conversation, quarter, model, usage_id, agent_kind, cost, prompt_tokens,
			completion_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, calls)
		SELECT ${prefix === "" ? "s.n" : uuid("s.n")}, ${FIRST} + s.n * ${YEAR - QUARTERS_EACH} / ${conversations} + q.n,
			'model ' || s.n % 10, CASE WHEN s.n % 10 = 0 AND q.n = 1 THEN 'condenser' ELSE 'agent' END,
			CASE WHEN s.n % 3 = 0 THEN 'ACPAgent' ELSE 'Agent' END, 12345678, 20000, 900, 15000, 2000, 100, 5
		FROM (${numbers(conversations)}) s CROSS JOIN (${numbers(QUARTERS_EACH)}) q`,
		`INSERT INTO ${prefix}usage_sums (length, start, model, usage_id, agent_kind, sender, owner, cost, prompt_tokens,
			completion_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, calls)
		SELECT p.length, l.quarter - l.quarter % p.length, l.model, l.usage_id, l.agent_kind, k.sender, k.owner, sum(l.cost),
			sum(l.prompt_tokens), sum(l.completion_tokens), sum(l.cache_read_tokens), sum(l.cache_write_tokens),
			sum(l.reasoning_tokens), sum(l.calls)
		FROM ${prefix}usage_ledger l JOIN ${prefix}usage_conversations k ON k.id = l.conversation
		CROSS JOIN (SELECT 1 AS length UNION ALL SELECT 4 UNION ALL SELECT 96 UNION ALL SELECT ${2 ** 32}) p
		GROUP BY 1, 2, 3, 4, 5, 6, 7`,
		`INSERT INTO ${prefix}usage_days (day, model, conversation, usage_id, agent_kind)
		SELECT DISTINCT (quarter - quarter % 96) / 96, model, conversation, usage_id, agent_kind FROM ${prefix}usage_ledger`,
		`INSERT INTO ${prefix}conversations (conversation_id, sequence, status, agent_kind, model, sender, owner, created_at,
			updated_at, activity_at, cost, tokens, gap_count, has_error)
		SELECT ${uuid("n")}, n + 1, 1 + n % 8, CASE WHEN n % 3 = 0 THEN 'ACPAgent' ELSE 'Agent' END, 'model ' || n % 10,
			'sender ' || n % 5, 'owner ' || n % 5, n, n, n, 0, 0, 0, FALSE
		FROM (${numbers(counted)}) s`,
		prefix === ""
			? `INSERT INTO tags (conversation, key, value, sequence) SELECT id, 'team', 'team ' || id % 20, sequence FROM conversations`
			: `INSERT INTO ${prefix}tags (conversation_id, key, value, sequence) SELECT conversation_id, 'team', 'team ' || sequence % 20, sequence FROM ${prefix}conversations`,
	];
}

interface Asked {
	readonly name: string;
	readonly path: string;
	/** Milliseconds; undefined for a figure that is only printed. */
	readonly most: number | undefined;
	/** For the plan: undefined for a count. */
	readonly report?: { readonly step: Step; readonly days: number };
}

const ASKED: readonly Asked[] = [
	{
		name: "30 days by model",
		path: "usage?group_by=model&from=2026-06-01T00:00:00Z&to=2026-07-01T00:00:00Z",
		...{ most: 50, report: { step: "none", days: 30 } },
	},
	{
		name: "a year by day and model",
		path: "usage?group_by=model&step=day&from=2026-01-01T00:00:00Z&to=2027-01-01T00:00:00Z",
		...{ most: 300, report: { step: "day", days: 365 } },
	},
	{
		name: "30 days by tag, from the ledger",
		path: "usage?group_by=tag:team&from=2026-06-01T00:00:00Z&to=2026-07-01T00:00:00Z",
		most: undefined,
	},
	...["status", "agent_kind", "model", "sender", "owner", "tag_key", "tag:team"].map((group) => ({
		...{ name: `counts by ${group}`, path: `conversations/counts?group_by=${group}`, most: 10 },
	})),
];

/** The query of a report by model that begins in June, or in January for a year. */
function queryFor({ step, days }: NonNullable<Asked["report"]>): UsageQuery {
	const first = days === 365 ? FIRST : Date.UTC(2026, 5, 1) / 900_000;
	const periods = periodsOf(step, () => 0, [{ first, beyond: first + days * 96 }], 10_000) ?? [];
	return {
		periods: periods.map((period) => ({ first: BigInt(period.first), beyond: BigInt(period.beyond) })),
		...{ groups: [{ kind: "model" }], conditions: [], top: 0, limit: 10_000 },
	};
}

export const usageReports: Benchmark = {
	name: "usage",
	about: `reports of ${CONVERSATIONS * 25} calls of ${CONVERSATIONS} conversations, and counts of ${COUNTED} conversations, against a hundredth of them`,
	async run(settings, report) {
		await using many = await DiskFolder.create(settings.folder);
		await using few = await DiskFolder.create(settings.folder);
		for (const [folder, share] of [
			[many, 1],
			[few, FEW],
		] as const)
			await filled(folder.database, share, report);
		using database = new DatabaseSync(fileURLToPath(many.database.replace("sqlite:", "file://")), {
			readBigInts: true,
		});
		const plan = async (query: UsageQuery) => {
			const texts: string[] = [];
			class Recorded extends Statements {
				override prepare(sql: string) {
					texts.push(sql);
					return super.prepare(sql);
				}
			}
			await reportUsage(sqliteSession(new Recorded(database)), query);
			return texts.map((sql) => {
				const rows = database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all();
				return rows.map(({ detail }) => `    ${String(detail)}`).join("\n");
			});
		};
		return await measure("usage", settings, { many: many.database, few: few.database, plan }, report);
	},
};

export const postgresUsage: Benchmark = {
	name: "postgres-usage",
	about: `with PostgreSQL, ${usageReports.about}`,
	async run(settings, report) {
		await using server = await DatabaseServer.start(settings.folder);
		const [many, few] = [await server.create(), await server.create()];
		await filled(many, 1, report);
		await filled(few, FEW, report);
		const plan = async (query: UsageQuery) => {
			const client = await connect(many);
			try {
				const plans: string[] = [];
				const queries: Query[] = [];
				const recording = {
					async query(...asked: readonly Query[]) {
						queries.push(...asked);
						return asked.map(() => []);
					},
					spread: new Spread(async () => false),
					hasSnapshot: true,
				};
				// Without rows there is no report.
				await reportUsage(postgresSession(recording), query).catch(() => undefined);
				for (const { text, values = [] } of queries) {
					const { rows } = await client.query(`EXPLAIN (ANALYZE, COSTS OFF) ${text}`, [...values]);
					plans.push(rows.map((row: Record<string, unknown>) => `    ${String(row["QUERY PLAN"])}`).join("\n"));
				}
				return plans;
			} finally {
				await client.end();
			}
		};
		return await measure("postgres-usage", settings, { many, few, plan }, report);
	},
};

async function filled(url: string, share: number, report: Report): Promise<void> {
	// The service creates the tables.
	await (await Service.start({ database: url }))[Symbol.asyncDispose]();
	const start = performance.now();
	if (url.startsWith("sqlite:")) {
		using database = new DatabaseSync(fileURLToPath(url.replace("sqlite:", "file://")));
		const numbers = (count: number) =>
			`WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n + 1 < ${count}) SELECT n FROM s`;
		const id = (n: string) => `printf('00000000-0000-4000-8000-%012x', ${n})`;
		for (const sql of [...fillSql("", share, id, numbers), "ANALYZE"]) database.exec(sql);
	} else {
		const numbers = (count: number) => `SELECT generate_series(0, ${count - 1})::bigint AS n`;
		const id = (n: string) => `('00000000-0000-4000-8000-' || lpad(to_hex(${n}), 12, '0'))::uuid`;
		const prefix = "conversation_updates.";
		await sqlOn(url, ...fillSql(prefix, share, id, numbers), "VACUUM ANALYZE");
	}
	report(`  filled in ${round((performance.now() - start) / 1000)} s`);
}

interface Measured {
	readonly many: string;
	readonly few: string;
	/** Returns the plans of the statements of a report. */
	readonly plan: (query: UsageQuery) => Promise<readonly string[]>;
}

async function measure(name: string, settings: Settings, of: Measured, report: Report): Promise<Figure[]> {
	await using many = await Service.start({ database: of.many, profile: settings.profile });
	await using few = await Service.start({ database: of.few });
	const timeOf = async ({ httpPort, key }: Service, path: string): Promise<number> => {
		const start = performance.now();
		const response = await fetch(`http://127.0.0.1:${httpPort}/api/v1/${path}`, { headers: { "X-Access-Token": key } });
		const body = await response.text();
		if (response.status !== 200) throw new Error(`${response.status}: ${body}`);
		return performance.now() - start;
	};
	const figures: Figure[] = [];
	for (const { name: asked, path, most, report: reported } of ASKED) {
		const times: [number, number][] = [];
		for (let n = -1; n < settings.rounds * 3; n += 1) {
			const pair: [number, number] = [await timeOf(many, path), await timeOf(few, path)];
			if (n >= 0) times.push(pair);
		}
		const of100 = median(times.map(([, time]) => time));
		const own = times.map(([time]) => time);
		figures.push({
			name: `${name}: ${asked}`,
			...{ value: median(own), unit: "ms", spread: [Math.min(...own), Math.max(...own)] },
			target: most === undefined ? undefined : { at: "most", value: most },
			note: `${round(median(own) / of100)} times ${round(of100)} ms with a hundredth of the data`,
		});
		if (reported === undefined) continue;
		for (const plan of await of.plan(queryFor(reported))) report(`  plan of ${asked}:\n${plan}`);
	}
	return figures;
}
