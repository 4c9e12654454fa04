import type { LogTable } from "../sequence-log.ts";
import type { Session } from "../session.ts";
import { bigint, text } from "../values.ts";

/** The names of the views that follow the logs. Each has its position in the table `views`. */
export type ViewName = "conversations" | "usage";

/** The entries of both logs up to which a view has followed. */
export interface ViewPosition {
	readonly updates: bigint;
	readonly events: bigint;
}

/** A view that has not followed up to the newest entries. */
export interface Behind extends ViewPosition {
	readonly view: ViewName;
}

/** What a step of a view follows. */
export interface NextEntries {
	readonly conversations: ReadonlySet<string>;
	readonly before: ViewPosition;
	/** The entries of these conversations up to here are followed in this step. At least the position after it. */
	readonly through: ViewPosition;
	/** The position after the step. */
	readonly after: ViewPosition;
	readonly hasMore: boolean;
}

/** Maximum number of entries of each log that a step reads. */
const MAX_ENTRIES = 1_000;
/** Maximum number of conversations that a step derives, so that appends wait only for a short commit. */
export const MAX_CONVERSATIONS = 64;
/** Number of entries of each log, from the position of a view on, of which a step follows those of its conversations. */
const AHEAD = 4_000n;

/**
 * What the steps of one run have followed beyond the position of a view. A step follows the entries of its conversations
 * also where they stand behind those of others, and later steps skip them. It holds while no other process moves the view.
 */
export class FollowedAhead {
	readonly #views = new Map<ViewName, { position: ViewPosition; readonly through: Map<string, ViewPosition> }>();

	/** Returns up to which entries conversations were followed, by their ids. */
	of(view: ViewName, position: ViewPosition): ReadonlyMap<string, ViewPosition> {
		const known = this.#views.get(view);
		const isSame = known?.position.updates === position.updates && known.position.events === position.events;
		return isSame ? known.through : new Map();
	}

	/** Notes what a step followed. */
	add(view: ViewName, { conversations, before, after, through }: NextEntries): void {
		const all = new Map(this.of(view, before));
		for (const [id, { updates, events }] of all) if (updates <= after.updates && events <= after.events) all.delete(id);
		for (const id of conversations) all.set(id, through);
		this.#views.set(view, { position: after, through: all });
	}
}

/** Returns the position of a view, and keeps other processes from following it in the meantime. */
export async function lockView({ dialect, all }: Session, name: ViewName): Promise<ViewPosition> {
	const [row] = await all(
		`SELECT updates, events FROM ${dialect.schema}views WHERE name = ? ${dialect.forUpdate}`,
		name,
	);
	return { updates: bigint(row?.updates), events: bigint(row?.events) };
}

/** Sets the position of a view, which is locked. */
export async function moveView({ dialect, all }: Session, name: ViewName, to: ViewPosition): Promise<void> {
	await all(`UPDATE ${dialect.schema}views SET updates = ?, events = ? WHERE name = ?`, to.updates, to.events, name);
}

/**
 * Reads the entries that a view follows next, of a bounded number of conversations. Locks the view.
 *
 * @param through when the view has followed all entries, its position becomes at least this one
 * @param isBesideDamage whether to read an index only: see `Dialect.entries`
 * @param ahead what earlier steps have followed, and this one will have when it succeeds
 */
export async function nextEntries(
	session: Session,
	name: ViewName,
	through: ViewPosition,
	isBesideDamage: boolean,
	ahead: FollowedAhead,
): Promise<NextEntries> {
	const before = await lockView(session, name);
	const followed = ahead.of(name, before);
	const conversations = new Set<string>();
	const follow = async (log: LogTable) => {
		const { from, besideDamage, conversationId } = session.dialect.entries[log];
		const rows = await session.all(
			`SELECT e.sequence, ${conversationId} AS conversation_id
			FROM ${isBesideDamage ? besideDamage : from} WHERE e.sequence > ? AND e.sequence <= ?
			ORDER BY e.sequence LIMIT ${MAX_ENTRIES}`,
			before[log],
			newest[log],
		);
		const isFull = rows.findIndex(({ sequence, conversation_id }) => {
			const id = text(conversation_id);
			if (bigint(sequence) <= (followed.get(id)?.[log] ?? 0n)) return false;
			if (conversations.size === MAX_CONVERSATIONS && !conversations.has(id)) return true;
			conversations.add(id);
			return false;
		});
		const entries = isFull < 0 ? rows : rows.slice(0, isFull);
		const last = entries.length === 0 ? before[log] : bigint(entries.at(-1)?.sequence);
		const hasMore = isFull >= 0 || rows.length === MAX_ENTRIES;
		return { position: hasMore || last > through[log] ? last : through[log], hasMore };
	};
	// What is appended after this is followed by later steps.
	const newest = await session.newestEntries();
	const [updates, events] = [await follow("updates"), await follow("events")];
	const after = { updates: updates.position, events: events.position };
	const furthest = (log: LogTable) => {
		const far = before[log] + AHEAD < newest[log] ? before[log] + AHEAD : newest[log];
		return far > after[log] ? far : after[log];
	};
	const next = {
		conversations,
		before,
		after,
		through: { updates: furthest("updates"), events: furthest("events") },
		hasMore: updates.hasMore || events.hasMore,
	};
	ahead.add(name, next);
	return next;
}

/** Notes that conversations change without an entry in a log, so that the views derive their rows. */
export async function markChanged(
	{ insert }: Pick<Session, "insert">,
	conversationIds: readonly string[],
): Promise<void> {
	// In the same order in all transactions, so that none waits for another one that waits for it.
	const rows = conversationIds.toSorted().map((id) => ({ conversation_id: id }));
	await insert("changed_conversations", rows, "NOTHING");
}
