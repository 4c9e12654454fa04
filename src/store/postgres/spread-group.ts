import type { WrittenGroup } from "../group.ts";
import type { NewestSequences } from "../sequence-log.ts";
import type { Columns, Value } from "../session.ts";
import { type Table, tableOf } from "../tables.ts";
import { bigint } from "../values.ts";
import { lockLogs } from "./locks.ts";
import { notifyQueries } from "./log.ts";
import { EVENTS, eventTimesQueries, insertValues, orReplace, sizeOfEvent, storedRow } from "./sql.ts";
import type { Transaction } from "./transaction.ts";
import {
	activityRows,
	childRows,
	entryRows,
	type GroupWriter,
	PROVISIONAL,
	PROVISIONAL_COLUMNS,
	sideQueries,
	WRITER_ROW_REPLACED,
} from "./written-group.ts";

const UPDATES = tableOf("postgres", "updates");
const HEADS = tableOf("postgres", "heads");
const ACTIVITIES = tableOf("postgres", "activities");
const CHILDREN = tableOf("postgres", "children");

/**
 * Writes a group into tables that Citus has spread, and commits. It takes the sequences first, so that all rows are values in
 * statements that Citus sends to the servers that have them. The groups of all processes are written one after the other
 * from then on.
 *
 * @returns the newest sequences before the group
 */
export async function commitSpread(
	transaction: Transaction,
	group: WrittenGroup,
	{ id, group: number, notifies }: GroupWriter,
): Promise<NewestSequences> {
	const { updates, events, heads } = await entryRows(group);
	const taken = await transaction.query(...sideQueries(group), lockLogs, {
		name: "take_sequences",
		text: `
			UPDATE conversation_updates.positions
			SET newest_update = newest_update + $1::bigint, newest_event = newest_event + $2::bigint
			RETURNING newest_update - $1::bigint AS first_update, newest_event - $2::bigint AS first_event
		`,
		values: [updates.length, events.length],
	});
	const [row] = taken.at(-1) ?? [];
	const before = { updates: bigint(row?.first_update), events: bigint(row?.first_event) };
	const final = (table: Table, rows: readonly Columns[]) =>
		rows.map((row) => storedRow(table, finalRow(table, row, before)));
	const finalEvents = final(EVENTS, events).map((row) => ({ ...row, size: sizeOfEvent(row) }));
	const newest = `${before.updates + BigInt(updates.length)} ${before.events + BigInt(events.length)}`;
	await transaction.commit(
		...insertValues(UPDATES, final(UPDATES, updates)),
		...insertValues(EVENTS, finalEvents),
		...eventTimesQueries(finalEvents),
		...insertValues(HEADS, final(HEADS, heads), orReplace(HEADS, ["sender", "owner"])),
		...insertValues(ACTIVITIES, final(ACTIVITIES, activityRows(group)), orReplace(ACTIVITIES, ["sender", "owner"])),
		...insertValues(CHILDREN, final(CHILDREN, childRows(group.children)), "ON CONFLICT DO NOTHING"),
		{
			text: `
				INSERT INTO conversation_updates.writers (id, last_group, first_update, first_event, written_at)
				VALUES ($1::uuid, $2::bigint, $3::bigint, $4::bigint, now()) ${WRITER_ROW_REPLACED}
			`,
			values: [id, number, before.updates, before.events],
		},
		...notifyQueries(notifies && updates.length + events.length > 0, newest),
	);
	return before;
}

/** Returns a row with the final numbers in place of provisional ones. */
function finalRow({ name: table }: Table, row: Columns, before: NewestSequences): Columns {
	const final: Record<string, Value | undefined> = { ...row };
	for (const name in row) {
		const [value, of] = [row[name], PROVISIONAL_COLUMNS[`${table}.${name}`]];
		if (of === undefined || typeof value !== "bigint" || value <= PROVISIONAL) continue;
		final[name] = (of === "first_update" ? before.updates : before.events) + (value - PROVISIONAL);
	}
	return final;
}
