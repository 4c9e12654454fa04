import type { Amounts, UsageRow } from "../usage/ledger.ts";
import type { Columns } from "./session.ts";
import { bigint, nullable, type Row, text } from "./values.ts";

/** The tables of usage, whose columns have the same names in every engine. */

/** Names of the columns with amounts, in the order of AMOUNTS. */
export const AMOUNT_COLUMNS = [
	"cost",
	"prompt_tokens",
	"completion_tokens",
	"cache_read_tokens",
	"cache_write_tokens",
	"reasoning_tokens",
	"calls",
] as const;

/** Length of the periods of the sums of all time: beyond every time, before or after the Unix epoch. */
export const ALL_TIME = 2n ** 32n;
/** Lengths of the periods of sums: a quarter of an hour, an hour, a day from midnight to midnight UTC, and all time. */
export const PERIODS = [1n, 4n, 96n, ALL_TIME] as const;

/** Returns the start of the period of some quarters of an hour that has a quarter. */
export function periodStart(quarter: bigint, length: bigint): bigint {
	return quarter - (((quarter % length) + length) % length);
}

export function amountColumns(amounts: Amounts): Record<(typeof AMOUNT_COLUMNS)[number], bigint> {
	return {
		cost: amounts.cost,
		prompt_tokens: amounts.promptTokens,
		completion_tokens: amounts.completionTokens,
		cache_read_tokens: amounts.cacheReadTokens,
		cache_write_tokens: amounts.cacheWriteTokens,
		reasoning_tokens: amounts.reasoningTokens,
		calls: amounts.calls,
	};
}

/** Reads the columns with amounts. */
export function amountsFrom(row: Row): Amounts {
	return {
		cost: bigint(row.cost),
		promptTokens: bigint(row.prompt_tokens),
		completionTokens: bigint(row.completion_tokens),
		cacheReadTokens: bigint(row.cache_read_tokens),
		cacheWriteTokens: bigint(row.cache_write_tokens),
		reasoningTokens: bigint(row.reasoning_tokens),
		calls: bigint(row.calls),
	};
}

/** What exports have of the view of usage: what it cannot derive, because history was removed. */

/**
 * The usage of a conversation as versions before the view exported it. An import has it as the `ledger` of a baseline, in
 * this JSON, until the view adopts it.
 */
export interface EarlierUsage {
	readonly earlier: {
		readonly state: { readonly ledger: string };
		readonly rows: readonly {
			readonly quarter: string;
			readonly model: string;
			readonly usageId: string;
			readonly agentKind: string;
			readonly cost: string;
			readonly promptTokens: string;
			readonly completionTokens: string;
			readonly cacheReadTokens: string;
			readonly cacheWriteTokens: string;
			readonly reasoningTokens: string;
			readonly calls: string;
		}[];
	};
}

/** With which the JSON of {@link EarlierUsage} begins, and no result of `formatSeen`. */
export const EARLIER = '{"earlier":{"state"';

/** The usage of a conversation that is kept when the view is reset. */
export interface UsageBaseline {
	/** A random one if the conversation was erased. */
	readonly conversationId: string;
	readonly sender: string;
	readonly owner: string;
	readonly source: string | undefined;
	readonly lifeBeganAt: bigint | undefined;
	/** The result of `formatSeen`; empty if the conversation was erased. */
	readonly ledger: string;
	/** Ordered by their keys. */
	readonly rows: readonly UsageRow[];
}

/** SQL for the columns of a row `l` of usage_ledger as {@link baselineFrom} reads them; `text` converts to a text. */
export function baselineArray(text: (column: string) => string): string {
	return ["quarter", "model", "usage_id", "agent_kind", ...AMOUNT_COLUMNS]
		.map((name) => (AMOUNT_KEYS.has(name) ? text(`l.${name}`) : `l.${name}`))
		.join();
}

const AMOUNT_KEYS = new Set<string>(["quarter", ...AMOUNT_COLUMNS]);

/**
 * Reads a baseline from the columns of usage_conversations, and `rows`: JSON text of an array of arrays with the columns of
 * {@link baselineArray}.
 */
export function baselineFrom(row: Row, decode: (value: unknown) => string): UsageBaseline {
	const rows: unknown = JSON.parse(text(row.rows));
	if (!Array.isArray(rows)) throw new TypeError("the column does not hold a list of rows");
	const keyed = rows.map(([quarter, model, usageId, agentKind, ...amounts]: readonly unknown[]) => {
		const columns = AMOUNT_COLUMNS.map((name, n) => [name, BigInt(text(amounts[n]))]);
		const read = {
			...{
				quarter: BigInt(text(quarter)),
				model: decode(model),
				usageId: decode(usageId),
				agentKind: decode(agentKind),
			},
			...amountsFrom(Object.fromEntries(columns)),
		};
		return { read, key: JSON.stringify([Number(read.quarter), read.model, read.usageId, read.agentKind]) };
	});
	return {
		conversationId: text(row.conversation_id),
		sender: decode(row.sender),
		owner: decode(row.owner),
		source: nullable(text, row.source_id),
		lifeBeganAt: nullable(bigint, row.life_began_at),
		ledger: decode(row.ledger),
		rows: keyed.sort((a, b) => (a.key < b.key ? -1 : 1)).map(({ read }) => read),
	};
}

/** Returns the columns of usage_conversations of a baseline, without its ids. */
export function baselineColumns({ sender, owner, source, lifeBeganAt, ledger }: UsageBaseline) {
	return { sender, owner, source_id: source ?? null, life_began_at: lifeBeganAt ?? null, is_kept: true, ledger };
}

/** Returns the columns of usage_ledger of a row, without the conversation. */
export function ledgerColumns({ quarter, model, usageId, agentKind, ...amounts }: UsageRow) {
	return { quarter, model, usage_id: usageId, agent_kind: agentKind, ...amountColumns(amounts) } satisfies Columns;
}
