import type { ConversationState } from "../conversation-state.ts";
import type { ConversationOrigin } from "../owners.ts";
import { originFrom, stateFrom } from "../rows.ts";
import { bigint, nullable, type Row, text } from "../values.ts";
import type { Statements } from "./statements.ts";

/** The head of a conversation that has a record: what the next append depends on. */
export interface KnownHead {
	readonly id: bigint;
	readonly row: Row;
	readonly state: ConversationState;
	readonly origin: ConversationOrigin;
	/** The conversation of which this one is a fork. */
	readonly source: string | undefined;
}

/** Finds the head of a conversation; returns undefined when it has no record. */
export function findHead(statements: Statements, conversationId: string): KnownHead | undefined {
	const row = statements.prepare("SELECT * FROM heads WHERE conversation_id = ?").get(conversationId);
	if (row === undefined) return undefined;
	const source = nullable(text, row.source_id);
	return { id: bigint(row.id), row, state: stateFrom(row, text), origin: originFrom(row, text), source };
}

/** Inserts the head of a conversation. Returns its row id. */
export function insertHead(
	statements: Statements,
	conversationId: string,
	state: ConversationState,
	source: string | undefined,
	{ sender, owner }: ConversationOrigin,
): bigint {
	const columns = {
		conversation_id: conversationId,
		sender: sender ?? null,
		owner: owner ?? null,
		source_id: source ?? null,
		...stateColumns(state),
	};
	const names = Object.keys(columns);
	const row = statements
		.prepare(`INSERT INTO heads (${names.join()}) VALUES (${names.map((name) => `:${name}`).join()}) RETURNING id`)
		.get(columns);
	return bigint(row?.id);
}

/** Writes what changes of a head. */
export function updateHead(
	statements: Statements,
	{ id, row }: KnownHead,
	state: ConversationState,
	source: string | undefined,
): void {
	const columns = { ...stateColumns(state), source_id: source ?? null };
	const changed = Object.entries(columns).filter(([name, value]) => row[name] !== value);
	if (changed.length === 0) return;
	const assignments = changed.map(([name]) => `${name} = :${name}`);
	statements
		.prepare(`UPDATE heads SET ${assignments.join()} WHERE id = :id`)
		.run({ ...Object.fromEntries(changed), id });
}

function stateColumns(state: ConversationState) {
	const { sequence, newestPosted, revision, memberTimes, postedAt, hasUnappliedEvents } = state;
	return {
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
