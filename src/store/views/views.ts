import type { Session } from "../session.ts";
import { min, text } from "../values.ts";
import { deriveConversations, resetConversations } from "./conversations.ts";
import {
	type AppendedEntries,
	type FollowGoal,
	latest,
	lockView,
	moveView,
	NOTHING,
	type ViewName,
	WaitingConversations,
} from "./follow.ts";
import { deriveUsage, resetUsage } from "./usage.ts";

/** All views that follow the logs. */

const VIEWS = ["conversations", "usage"] as const satisfies readonly ViewName[];

/** Least and most conversations that a step derives. */
const SIZES = { least: 2, most: 128 } as const;

export type RunInTransaction = <Result>(work: (session: Session) => Promise<Result>) => Promise<Result>;

/** Lets the views follow the logs, step by step. Both follow the same entries. */
export class ViewFollower {
	readonly #run: RunInTransaction;
	readonly #milliseconds: number;
	readonly #waiting = new WaitingConversations();
	/** Number of conversations of the next step. */
	#size: number = SIZES.least;
	/** Whether the last step left entries in the logs that it had not read. */
	#hasUnread = false;

	/**
	 * @param run runs work in a transaction
	 * @param milliseconds that a step should take at most, because others wait for it
	 */
	constructor(run: RunInTransaction, milliseconds = 1_000) {
		this.#run = run;
		this.#milliseconds = milliseconds;
	}

	/** Says what was appended, so that it need not be read. Not for entries that can become visible in another order. */
	append(entries: AppendedEntries): void {
		this.#waiting.append(entries);
	}

	/**
	 * Number of conversations that wait to be derived, as far as {@link append} and earlier steps know; infinite while further
	 * entries wait to be read.
	 */
	get waiting(): number {
		return this.#hasUnread ? Number.POSITIVE_INFINITY : this.#waiting.size;
	}

	/**
	 * Does a step, up to a bounded number of conversations.
	 *
	 * @returns whether there may be more to do for the goal
	 */
	async step(goal: FollowGoal = NOTHING): Promise<boolean> {
		const began = performance.now();
		let isRepeated = false;
		try {
			const { hasMore, derived } = await this.#run((session) => {
				// What an attempt took that was rolled back waits again.
				if (isRepeated) this.restart();
				isRepeated = true;
				return this.#step(session, goal);
			});
			const duration = Math.max(performance.now() - began, 0.1);
			const fitting = Math.floor((derived * this.#milliseconds) / duration);
			if (derived > 0) this.#size = Math.min(Math.max(fitting, SIZES.least), SIZES.most, this.#size * 2);
			return hasMore;
		} catch (error) {
			this.restart();
			throw error;
		}
	}

	/** Forgets what waits, which is read again: after views were reset, or a failure. */
	restart(): void {
		this.#waiting.restart();
	}

	async #step(session: Session, goal: FollowGoal) {
		const positions = [await lockView(session, "conversations"), await lockView(session, "usage")];
		let position = positions.reduce((a, b) => ({
			updates: min(a.updates, b.updates),
			events: min(a.events, b.events),
		}));
		const hasMoreEntries = await this.#waiting.read(session, position);
		this.#hasUnread = hasMoreEntries;
		const marked = await takeMarked(session, this.#size);
		const entries = this.#waiting.take(this.#size, hasMoreEntries);
		const ids = [...new Set([...marked, ...entries.keys()])];
		if (ids.length > 0) {
			await deriveConversations(session, ids);
			await deriveUsage(session, ids, { entries, marked: new Set(marked) });
		}
		const { followed } = this.#waiting;
		const isAll = !hasMoreEntries && this.#waiting.size === 0;
		if (followed !== undefined) {
			const to = isAll && goal !== "round" ? latest(followed, goal) : followed;
			for (const [n, view] of VIEWS.entries()) {
				const before = positions[n] ?? NOTHING;
				const after = latest(before, to);
				if (after.updates > before.updates || after.events > before.events) await moveView(session, view, after);
			}
			position = latest(position, to);
			this.#waiting.moved(position);
		}
		const isReached = isAll || (goal === "round" && this.#waiting.isRoundOver);
		return { hasMore: !isReached || marked.length === this.#size, derived: ids.length };
	}
}

/** Removes all rows of views, so that they follow both logs from their beginning. */
export async function resetViews(session: Session, views: readonly ViewName[] = VIEWS): Promise<void> {
	if (views.includes("conversations")) await resetConversations(session);
	if (views.includes("usage")) await resetUsage(session);
}

/** Takes conversations that changed without an entry in a log. */
async function takeMarked({ dialect: { schema }, all, isIn }: Session, number: number): Promise<string[]> {
	const rows = await all(`SELECT conversation_id FROM ${schema}changed_conversations LIMIT ${number}`);
	const ids = rows.map(({ conversation_id }) => text(conversation_id));
	if (ids.length > 0) await all(`DELETE FROM ${schema}changed_conversations WHERE ${isIn("conversation_id")}`, ids);
	return ids;
}
