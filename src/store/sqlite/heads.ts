import type { ConversationOrigin } from "../owners.ts";
import { originFrom, stateFrom } from "../rows.ts";
import { bigint, nullable, type Row, text } from "../values.ts";
import type { Head } from "../written-group.ts";
import type { Statements } from "./statements.ts";

/** The head of a conversation that has a record: what the next append depends on. */
export interface KnownHead extends Head {
	readonly id: bigint;
	readonly row: Row;
	readonly origin: ConversationOrigin;
}

/** Finds the head of a conversation; returns undefined when it has no record. */
export function findHead(statements: Statements, conversationId: string): KnownHead | undefined {
	const row = statements.prepare("SELECT * FROM heads WHERE conversation_id = ?").get(conversationId);
	if (row === undefined) return undefined;
	return {
		id: bigint(row.id),
		row,
		state: stateFrom(row, text),
		origin: originFrom(row, text),
		source: nullable(text, row.source_id),
		parent: nullable(text, row.parent_id),
	};
}

/** Inserts the head of a conversation. Returns its row id. */
export function insertHead(
	statements: Statements,
	conversationId: string,
	head: Head,
	{ sender, owner }: ConversationOrigin,
): bigint {
	const columns = {
		conversation_id: conversationId,
		sender: sender ?? null,
		owner: owner ?? null,
		...headColumns(head),
	};
	const names = Object.keys(columns);
	const row = statements
		.prepare(`INSERT INTO heads (${names.join()}) VALUES (${names.map((name) => `:${name}`).join()}) RETURNING id`)
		.get(columns);
	return bigint(row?.id);
}

/** Writes what changes of a head. */
export function updateHead(statements: Statements, { id, row }: KnownHead, after: Head): void {
	const changed = Object.entries(headColumns(after)).filter(([name, value]) => row[name] !== value);
	if (changed.length === 0) return;
	const assignments = changed.map(([name]) => `${name} = :${name}`);
	statements
		.prepare(`UPDATE heads SET ${assignments.join()} WHERE id = :id`)
		.run({ ...Object.fromEntries(changed), id });
}

function headColumns({ state, source, parent }: Head) {
	const { sequence, newestPosted, revision, memberTimes, postedAt, hasUnappliedEvents } = state;
	return {
		source_id: source ?? null,
		parent_id: parent ?? null,
		sequence,
		status: BigInt(state.status),
		order_time: state.orderTime ?? null,
		life_began_at: state.lifeBeganAt ?? null,
		created_at: state.createdAt,
		updated_at: state.updatedAt,
		run_started_at: state.runStartedAt ?? null,
		newest_sequence: newestPosted?.sequence ?? null,
		newest_updated_at: newestPosted?.updatedAt ?? null,
		newest_size: newestPosted === undefined ? null : BigInt(newestPosted.size),
		revision,
		member_times: memberTimes ?? null,
		posted_at: postedAt ?? null,
		has_unapplied_events: hasUnappliedEvents ? 1n : 0n,
	};
}
