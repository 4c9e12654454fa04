import type { Session } from "../session.ts";
import { text } from "../values.ts";
import { followConversations, readConversation, resetConversations } from "./conversations.ts";
import { FollowedAhead, lockView, MAX_CONVERSATIONS, nextEntries, type ViewName, type ViewPosition } from "./follow.ts";
import { followUsage, readUsageEntries, resetUsage } from "./usage.ts";

/** All views that follow the logs. */

const NOTHING: ViewPosition = { updates: 0n, events: 0n };

/**
 * Does a step of each view, up to a bounded number of conversations.
 *
 * @param through as for `followConversations`
 * @param unreadable conversations whose rows stay as they are, because pages of the database are damaged
 * @param ahead what the steps before have followed
 * @returns whether there may be more to do
 */
export async function followViews(
	session: Session,
	through: ViewPosition = NOTHING,
	unreadable: ReadonlySet<string> = new Set(),
	ahead: FollowedAhead = new FollowedAhead(),
): Promise<boolean> {
	await lockView(session, "conversations");
	const marked = await takeMarked(session);
	const steps = [
		await followConversations(session, through, unreadable, marked, ahead),
		await followUsage(session, through, unreadable, marked, ahead),
	];
	return marked.length === MAX_CONVERSATIONS || steps.some(({ hasMore }) => hasMore);
}

/** Removes all rows of views, so that they follow both logs from their beginning. */
export async function resetViews(
	session: Session,
	views: readonly ViewName[] = ["conversations", "usage"],
): Promise<void> {
	if (views.includes("conversations")) await resetConversations(session);
	if (views.includes("usage")) await resetUsage(session);
}

/** Takes conversations that changed without an entry in a log. */
async function takeMarked({ dialect: { schema }, all, isIn }: Session): Promise<string[]> {
	const rows = await all(`SELECT conversation_id FROM ${schema}changed_conversations LIMIT ${MAX_CONVERSATIONS}`);
	const ids = rows.map(({ conversation_id }) => text(conversation_id));
	if (ids.length > 0) await all(`DELETE FROM ${schema}changed_conversations WHERE ${isIn("conversation_id")}`, ids);
	return ids;
}

/**
 * Returns those of the conversations of the next step that cannot be read.
 *
 * @param isUnreadable returns whether a failure concerns a damaged page
 */
export async function findUnreadable(
	session: Session,
	isUnreadable: (error: unknown) => boolean,
): Promise<Set<string>> {
	const ids = new Set<string>();
	for (const name of ["conversations", "usage"] as const)
		for (const id of (await nextEntries(session, name, NOTHING, true, new FollowedAhead())).conversations) ids.add(id);
	const marked = await session.all(`SELECT conversation_id FROM ${session.dialect.schema}changed_conversations`);
	for (const { conversation_id } of marked) ids.add(text(conversation_id));
	const unreadable = new Set<string>();
	for (const id of ids)
		try {
			await readConversation(session, id);
			await readUsageEntries(session, id);
		} catch (error) {
			if (!isUnreadable(error)) throw error;
			unreadable.add(id);
		}
	return unreadable;
}
