import { LRUCache } from "lru-cache";
import { asciiLower } from "../condition.ts";
import { SCHEMA as SCHEMAS } from "../schema.ts";
import type { Session as AnySession, Change, Columns, Value } from "../session.ts";
import { type Table, tableOf } from "../tables.ts";
import { bigint, type Row, text } from "../values.ts";
import { ANY_OF, POSTGRES } from "./dialect.ts";
import { readPositions, settledSequences } from "./log.ts";
import { encodeText, isConversationId, RecordReader } from "./rows.ts";
import { lockSettled } from "./settled.ts";
import {
	Bytes,
	eventTimesQueries,
	insertEvents,
	insertInto,
	insertValues,
	json,
	onConflict,
	orReplace,
	removeRows,
	removeValues,
	rowsFor,
	sizeOfEvent,
	storedRow,
} from "./sql.ts";
import { findDocuments, removeWords, writeWords } from "./text-index.ts";
import type { Query, Session } from "./transaction.ts";

const SCHEMA = SCHEMAS.postgres;

/** Statements with question marks, by these. Lists have one for each combination of conditions. */
const numbered = new LRUCache<string, string>({ max: 1_000 });

/** Returns a statement with $1, $2 … in place of its question marks. No statement has one in a text. */
function withNumbers(text: string): string {
	let found = numbered.get(text);
	if (found === undefined) {
		let count = 0;
		found = text.replaceAll("?", () => `$${++count}`);
		numbered.set(text, found);
	}
	return found;
}

/** Returns the session of a transaction. */
export function postgresSession(transaction: Session): AnySession {
	const run = async (query: Query): Promise<Row[]> => (await transaction.query(query))[0] ?? [];
	/** Returns whether rows of a table are on several servers. */
	const areRowsSpread = async ({ spread }: Table) => spread !== "coordinator" && (await transaction.isDistributed());
	return {
		...POSTGRES,
		all: async (statement, ...values) => {
			const known = values.map((value) => (isIds(value) ? value.filter(isConversationId) : value));
			if (!(await transaction.isDistributed())) return await run({ text: withNumbers(statement), values: known });
			// Of a list Citus asks all servers for the rows of joined tables, of one id only the server that has it.
			const ofOne = known.findIndex((value) => isIds(value) && value.length === 1);
			if (ofOne < 0 || known.filter(isIds).length > 1)
				return await run({ text: withNumbers(statement), values: known });
			const one = known.map((value) => (isIds(value) ? value[0] : value));
			return await run({ text: withNumbers(statement.replaceAll(ANY_OF, "= ?::uuid")), values: one });
		},
		stored: storedRow,
		async write(table, changes) {
			const rows = changes.filter(isChanged).map(({ after }) => after);
			if (rows.length === 0) return;
			if (await areRowsSpread(table)) await transaction.query(...insertValues(table, rows, orReplace(table)));
			else await run(replace(table, rows));
		},
		async insert(name, rows, ifExists) {
			if (rows.length === 0) return;
			const table = tableOf("postgres", name);
			if (await areRowsSpread(table)) {
				const stored = rows.map((row) => storedRow(table, row));
				const conflict = ifExists === undefined ? "" : onConflict(table, ifExists);
				await transaction.query(...insertValues(table, stored, conflict));
				return;
			}
			const bytes = new Bytes();
			const values = [rowsFor(table, rows, bytes)];
			const hasBytes = Object.values(table.columns).includes("bytes");
			const text = `${insertInto(table)} ${ifExists === undefined ? "" : onConflict(table, ifExists)}`;
			await run({ text, values: hasBytes ? [...values, bytes.all()] : values });
		},
		async insertEntries(log, rows) {
			const table = tableOf("postgres", log);
			const owners = log === "updates" ? "heads" : "activities";
			if (await areRowsSpread(table)) {
				const found = await run({
					text: `SELECT conversation_id, owner FROM ${SCHEMA}${owners} WHERE conversation_id = ANY ($1::uuid[])`,
					values: [rows.map((row) => row.conversation_id)],
				});
				const ownerOf = new Map(found.map((row) => [row.conversation_id, row.owner === null ? null : text(row.owner)]));
				const entries = rows.map((row) => ({
					...storedRow(table, row),
					owner: ownerOf.get(row.conversation_id) ?? null,
					...(log === "events" ? { size: sizeOfEvent(row) } : {}),
				}));
				await transaction.query(
					...insertValues(table, entries),
					...(log === "events" ? eventTimesQueries(entries) : []),
				);
				return;
			}
			const bytes = new Bytes();
			const values = [rowsFor(table, rows, bytes), bytes.all()];
			const owner = `(SELECT o.owner FROM ${SCHEMA}${owners} o WHERE o.conversation_id = r.conversation_id)`;
			const valueFor = (column: string) => (column === "owner" ? owner : undefined);
			const statement =
				log === "updates"
					? insertInto(table, { valueFor })
					: `WITH ${insertEvents({ valueFor })} SELECT count(*) FROM new_events`;
			await run({ text: statement, values });
		},
		async removeEntries(log, sequences, of) {
			const where = `sequence = ANY ($1::bigint[]) ${of === undefined ? "" : "AND conversation_id = $2"}`;
			const values = [sequences, ...(of === undefined ? [] : [of])];
			const removed = (table: string) => ({
				text: `DELETE FROM ${SCHEMA}${table} WHERE ${where} RETURNING sequence`,
				values,
			});
			const [gone = []] = await transaction.query(
				removed(log),
				// After the events: a step of the index that waits for them finds them gone.
				...(log === "events" ? [removed("search_texts")] : []),
			);
			return gone.map(({ sequence }) => bigint(sequence));
		},
		async takeSequence() {
			const [row] = await run({
				text: `UPDATE ${SCHEMA}positions SET newest_update = newest_update + 1 RETURNING newest_update`,
			});
			return bigint(row?.newest_update);
		},
		async removeTitleWords(conversationId) {
			await run({ text: `DELETE FROM ${SCHEMA}search_titles WHERE conversation_id = $1`, values: [conversationId] });
		},
		async remove(table, keys) {
			if (keys.length === 0) return;
			if (await areRowsSpread(table)) await transaction.query(...removeValues(table, keys));
			else await run(removeRows(table, json(keys)));
		},
		async add(table, rows) {
			if (rows.length === 0) return;
			const numbers = Object.keys(table.columns).filter((name) => !table.key.includes(name));
			const sums = numbers.map(
				(name) => `
					${name} = least(greatest(t.${name}::numeric + excluded.${name}, -9223372036854775808), 9223372036854775807)`,
			);
			const sum = `ON CONFLICT (${table.key.join()}) DO UPDATE SET ${sums.join()}`;
			await run({ name: `add_${table.name}`, text: `${insertInto(table)} ${sum}`, values: [json(rows)] });
			const condition = numbers.map((name) => `AND t.${name} = 0`).join(" ");
			await run(removeRows(table, json(rows), { name: "_zero", condition }));
		},
		async lock(conversationIds) {
			if (conversationIds.length > 0) await lockSettled(transaction, conversationIds);
		},
		async lockTable(table) {
			await run({ text: `LOCK TABLE ${SCHEMA}${table} IN SHARE ROW EXCLUSIVE MODE` });
		},
		async setOwner(conversationIds, owner) {
			const values = [encodeText(owner), conversationIds];
			await transaction.query(
				...OWNED.map((table) => ({
					text: `UPDATE ${SCHEMA}${table} SET owner = $1 WHERE conversation_id = ANY ($2::uuid[])`,
					values,
				})),
			);
		},
		find: async (conditions) => ({
			from: [`${SCHEMA}conversations c`, ...conditions.flatMap(({ join = [] }) => join)].join(" "),
			tests: conditions.map(({ test }) => test),
		}),
		records: () => new RecordReader(),
		contents: {
			columns: ", e.text, e.unpacked_size, e.checksum, e.secrets, e.redaction_version",
			read: (row) => row,
		},
		isSpread: () => transaction.isDistributed(),
		settled: (conversationId) =>
			settledSequences(transaction, isConversationId(conversationId ?? "") ? [conversationId ?? ""] : undefined),
		newestEntries: async () => (await settledSequences(transaction)) ?? (await readPositions(transaction)),
		async writeTitles(titles) {
			const changed = titles.flatMap(({ key, before, after }) => {
				const title = after === undefined ? undefined : encodeText(asciiLower(after));
				return title === before ? [] : [{ conversation_id: key, title: title ?? null }];
			});
			const [gone, kept] = [
				changed.filter(({ title }) => title === null),
				changed.filter(({ title }) => title !== null),
			];
			await this.remove(TITLES, gone);
			await this.write(
				TITLES,
				kept.map((after) => ({ before: undefined, after })),
			);
		},
		async removeTitles() {
			await run({ text: `DELETE FROM ${SCHEMA}titles` });
		},
		writeWords: (step) => writeWords(transaction, step),
		findDocuments: (query) => findDocuments(transaction, query),
		removeWords: () => removeWords(transaction),
		async writeTexts({ texts }) {
			await run({
				text: `
					UPDATE ${SCHEMA}events e SET text = r.text, unpacked_size = r.unpacked_size, checksum = r.checksum
					FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[])
						AS r (sequence, text, unpacked_size, checksum, former_checksum)
					WHERE e.sequence = r.sequence AND e.checksum = r.former_checksum
				`,
				values: [
					texts.map(({ sequence }) => sequence),
					texts.map(({ record }) => Buffer.from(record)),
					texts.map(({ unpackedSize }) => unpackedSize),
					texts.map(({ checksum }) => checksum),
					texts.map(({ formerChecksum }) => formerChecksum),
				],
			});
		},
	};
}

const TITLES = tableOf("postgres", "titles");

/** Tables whose rows have the owner of their conversation. */
const OWNED = ["activities", "updates", "events", "pruned", "heads"];

function isIds(value: Value): value is readonly string[] {
	return Array.isArray(value) && typeof value[0] !== "bigint";
}

function isChanged({ before, after }: Change): boolean {
	return before === undefined || Object.keys(after).some((name) => before[name] !== after[name]);
}

/** @param rows in their stored form */
function replace(table: Table, rows: readonly Columns[]): Query {
	return { name: `replace_${table.name}`, text: `${insertInto(table)} ${orReplace(table)}`, values: [json(rows)] };
}
