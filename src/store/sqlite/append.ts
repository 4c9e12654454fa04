import type { DatabaseSync } from "node:sqlite";
import { decodeHead, type EncodedUpdate } from "../encoded-update.ts";
import { type CurrentState, decide } from "../ordering.ts";
import type { Appended } from "../store.ts";
import { storeRecord } from "./records.ts";
import { markOf, repetitionFinder } from "./repetitions.ts";
import { bigint, nullable, text } from "./values.ts";

/** What was done with an update. */
export interface Written {
	readonly appended: Appended;
	/** The row of its conversation. */
	readonly conversation: bigint;
}

/** A conversation's row of `heads`. */
interface Head extends CurrentState {
	readonly conversation: bigint;
	readonly sequence: bigint;
}

/**
 * Returns a function that appends one update inside a transaction that the caller holds. `nextSequence` is called
 * only when the update is to be written. The connection reads integers as bigints.
 */
export function appender(database: DatabaseSync): (update: EncodedUpdate, nextSequence: () => bigint) => Written {
	const find = database.prepare("SELECT id, sequence, status, updated_at FROM heads WHERE conversation_id = ?", {
		returnArrays: true,
	});
	const findFirst = repetitionFinder(database);
	const insertUpdate = database.prepare("INSERT INTO updates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
	const insertHead = database.prepare(
		"INSERT INTO heads (sequence, status, updated_at, conversation_id) VALUES (?, ?, ?, ?)",
	);
	const updateHead = database.prepare("UPDATE heads SET sequence = ?, status = ?, updated_at = ? WHERE id = ?");

	return function append([head, record], nextSequence) {
		const { id, receivedAt, seal, status, updatedAt, digest, summary, columns } = decodeHead(head);
		const known = headOf(find.get(id));
		const identity = { digest, record, updatedAt };
		const mark = markOf(identity);
		const first = known && findFirst(known.conversation, mark, identity);
		if (known !== undefined && first !== undefined) return { appended: first, conversation: known.conversation };
		const { current, change } = decide(known, { status, updatedAt });
		const sequence = nextSequence();
		const time = updatedAt ?? null;
		let conversation = known?.conversation;
		if (conversation === undefined) conversation = bigint(insertHead.run(sequence, status, time, id).lastInsertRowid);
		else if (current) updateHead.run(sequence, status, time, conversation);
		const stored = storeRecord(record);
		insertUpdate.run(
			sequence,
			conversation,
			change,
			current ? 1 : 0,
			known?.sequence ?? null,
			receivedAt,
			mark,
			digest,
			stored.unpackedSize,
			stored.record,
			time,
			seal,
			columns,
			summary,
		);
		return { appended: { sequence, repeated: false, change, current }, conversation };
	};
}

function headOf(row: unknown): Head | undefined {
	if (!Array.isArray(row)) return undefined;
	const [id, sequence, status, updatedAt] = row;
	return {
		conversation: bigint(id),
		sequence: bigint(sequence),
		status: text(status),
		updatedAt: nullable(bigint, updatedAt),
	};
}
