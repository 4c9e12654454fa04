import type { SQLInputValue } from "node:sqlite";
import type { Answer } from "../../threads/messages.ts";
import type { ConversationQuery } from "../store.ts";
import { uuidText } from "../uuid.ts";
import { type Access, type Condition, conditionsOf, everything, type Source, type Sql } from "./conditions.ts";
import type { ConversationAnswer } from "./messages.ts";
import { loadRecord } from "./records.ts";
import { columnsOf, type Statements } from "./statements.ts";
import { KnownStream, rangeStream, type Stream } from "./streams.ts";
import type { Titles } from "./titles.ts";
import { bindable, blob, integer } from "./values.ts";

/** Entries of the first stretch of an index; each further one is twice as long, up to the longest. */
const firstStretch = 128;
const longestStretch = 2_048;
/** Entries of the first stretch after ranges and titles were looked up. */
const streamStretch = 64;
/** Nothing is looked up while one in so many entries is found, nor when so few entries are left. */
const worthwhile = 20;
const fewEntries = 1_024;

/** One way to find conversations in order: along an index, or by sequences that were found otherwise. */
interface Path {
	/** The sequence of the `count`-th entry below `below`; 0 when there are fewer. */
	reach(below: number, count: number): number;
	/** The rows from `below` down to `downTo` that meet all conditions. */
	rows(below: number, downTo: number, limit: number): unknown[];
}

/**
 * Answers a list query.
 *
 * With several conditions, the page is filled stretch by stretch. Each time the path whose entries lie furthest apart
 * is followed, because it passes over most conversations, and the rows on it are tested for the other conditions.
 * Ranges and titles, which cost something to look up, come in when a stretch yields little.
 */
export function listConversations(statements: Statements, titles: Titles, query: ConversationQuery): Answer {
	const conditions = conditionsOf(query.filter);
	const paths = indexPaths(statements, conditions, query.withRecords);
	const rows: unknown[] = [];
	let below = Math.min(Number(bindable(query.before ?? 2n ** 63n)), Number.MAX_SAFE_INTEGER);
	const [only] = paths;
	if (only !== undefined && conditions.length <= 1 && conditions.every(({ source }) => source.kind === "index")) {
		rows.push(...only.rows(below, 0, query.limit));
		return answerOf(rows);
	}
	let looked = false;
	for (let stretch = firstStretch; below > 0; stretch = Math.min(stretch * 2, longestStretch)) {
		const [path, downTo] = sparsest(paths, below, stretch);
		const found = path.rows(below, downTo, query.limit - rows.length);
		rows.push(...found);
		if (rows.length === query.limit) break;
		below = downTo;
		if (looked || found.length * worthwhile > stretch || sparsest(paths, below, fewEntries)[1] === 0) continue;
		looked = true;
		for (const condition of conditions) {
			const stream = lookedUp(statements, titles, condition.source, below);
			if (stream === undefined) continue;
			paths.push(new StreamPath(statements, stream, testsBut(conditions, condition), query.withRecords));
		}
		stretch = streamStretch / 2;
	}
	return answerOf(rows);
}

function answerOf(rows: readonly unknown[]): Answer {
	const answers: ConversationAnswer[] = [];
	const parts: Uint8Array[] = [];
	for (const row of rows) {
		const [sequence, id, summary, record, unpackedSize] = columnsOf(row);
		answers.push({ conversationId: uuidText(blob(id)), sequence: BigInt(integer(sequence)) });
		parts.push(blob(summary));
		if (record !== undefined) parts.push(loadRecord(record, unpackedSize));
	}
	return { value: answers, parts };
}

function indexPaths(statements: Statements, conditions: readonly Condition[], withRecords: boolean): Path[] {
	const paths: Path[] = [];
	for (const condition of conditions) {
		const { source } = condition;
		if (source.kind !== "index") continue;
		paths.push(new IndexPath(statements, source.access, testsBut(conditions, condition), withRecords));
	}
	if (paths.length === 0) paths.push(new IndexPath(statements, everything, testsBut(conditions), withRecords));
	return paths;
}

/** The tests of all conditions but the one that a path sees to by itself. */
function testsBut(conditions: readonly Condition[], met?: Condition): Sql[] {
	return conditions.filter((condition) => condition !== met).map(({ test }) => test);
}

/** The conversations of a source below a sequence; undefined when it is an index, or when they are too many. */
function lookedUp(statements: Statements, titles: Titles, source: Source, below: number): Stream | undefined {
	if (source.kind === "index") return undefined;
	if (source.kind === "range") return rangeStream(statements, source.range, below);
	const found = titles.find(source.needle);
	return found === undefined ? undefined : new KnownStream(found);
}

function sparsest(paths: readonly Path[], below: number, count: number): [Path, number] {
	const [first, ...others] = paths;
	if (first === undefined) throw new TypeError("a query has no path");
	let best: [Path, number] = [first, first.reach(below, count)];
	for (const path of others) {
		const reach = path.reach(below, count);
		if (reach < best[1]) best = [path, reach];
	}
	return best;
}

function selection(withRecords: boolean): { columns: string; join: string } {
	const columns = "c.sequence, c.conversation_id, c.summary";
	if (!withRecords) return { columns, join: "" };
	return { columns: `${columns}, u.record, u.unpacked_size`, join: "CROSS JOIN updates u ON u.sequence = c.sequence" };
}

class IndexPath implements Path {
	readonly #statements: Statements;
	readonly #parameters: readonly SQLInputValue[];
	readonly #testParameters: readonly SQLInputValue[];
	readonly #reach: string;
	readonly #rows: string;

	/** `tests` are those that the index does not see to. */
	constructor(statements: Statements, access: Access, tests: readonly Sql[], withRecords: boolean) {
		const { from, sequence, where } = access;
		const { columns, join } = selection(withRecords);
		this.#statements = statements;
		this.#parameters = where.parameters;
		this.#testParameters = tests.flatMap(({ parameters }) => parameters);
		this.#reach = `
			SELECT ${sequence} FROM ${from} WHERE ${where.text} AND ${sequence} < ? ORDER BY ${sequence} DESC LIMIT 1 OFFSET ?
		`;
		this.#rows = `
			SELECT ${columns} FROM ${from} ${access.join} ${join}
			WHERE ${[where, ...tests].map(({ text }) => text).join(" AND ")}
				AND ${sequence} < ? AND ${sequence} >= ? ORDER BY ${sequence} DESC LIMIT ?
		`;
	}

	reach(below: number, count: number): number {
		const row = this.#statements.numbers(this.#reach).get(...this.#parameters, below, count - 1);
		return row === undefined ? 0 : integer(columnsOf(row)[0]);
	}

	rows(below: number, downTo: number, limit: number): unknown[] {
		return this.#statements.numbers(this.#rows).all(...this.#parameters, ...this.#testParameters, below, downTo, limit);
	}
}

class StreamPath implements Path {
	readonly #statements: Statements;
	readonly #stream: Stream;
	readonly #testParameters: readonly SQLInputValue[];
	readonly #rows: string;
	/** Sequences taken from the stream and not passed yet, newest first. */
	#ahead: number[] = [];

	/** `tests` are those that the stream does not see to. */
	constructor(statements: Statements, stream: Stream, tests: readonly Sql[], withRecords: boolean) {
		const { columns, join } = selection(withRecords);
		this.#statements = statements;
		this.#stream = stream;
		this.#testParameters = tests.flatMap(({ parameters }) => parameters);
		const known = "c.sequence IN (SELECT value FROM json_each(?))";
		this.#rows = `
			SELECT ${columns} FROM conversations c INDEXED BY conversations_by_sequence ${join}
			WHERE ${[known, ...tests.map(({ text }) => text)].join(" AND ")}
			ORDER BY c.sequence DESC LIMIT ?
		`;
	}

	reach(below: number, count: number): number {
		this.#ahead = this.#ahead.filter((sequence) => sequence < below);
		while (this.#ahead.length < count) {
			const sequence = this.#stream.next(this.#ahead.at(-1) ?? below);
			if (sequence === undefined) return 0;
			this.#ahead.push(sequence);
		}
		return this.#ahead[count - 1] ?? 0;
	}

	rows(below: number, downTo: number, limit: number): unknown[] {
		const sequences = this.#ahead.filter((sequence) => sequence < below && sequence >= downTo);
		return this.#statements.numbers(this.#rows).all(JSON.stringify(sequences), ...this.#testParameters, limit);
	}
}
