import { max } from "../values.ts";
import { FollowedAhead, type ViewPosition } from "../views/follow.ts";
import { followViews } from "../views/views.ts";
import type { Connections } from "./connections.ts";
import { postgresSession } from "./session.ts";
import type { Query } from "./transaction.ts";

/** Milliseconds after an append after which the views follow the logs although no read waits for them. */
const FOLLOW_DELAY = 1_000;

/** Returns the query that makes the views derive the rows of conversations that change without an entry in a log. */
export function markChangedQuery(conversationIds: readonly string[]): Query {
	return {
		name: "mark_changed",
		text: `INSERT INTO conversation_updates.changed_conversations SELECT id FROM unnest($1::uuid[]) AS id ORDER BY id
			ON CONFLICT DO NOTHING`,
		values: [conversationIds],
	};
}

/** Lets the views follow the logs, for reads that wait, and in the background. */
export class ViewFollower {
	readonly #connections: Connections;
	readonly #onError: (error: unknown) => void;
	#timer: NodeJS.Timeout | undefined;
	#isClosed = false;
	#running: Promise<void> = Promise.resolve();
	/** A run that has not begun, for all who wait. */
	#waiting: { readonly done: Promise<void>; through: ViewPosition } | undefined;

	constructor(connections: Connections, onError: (error: unknown) => void) {
		this.#connections = connections;
		this.#onError = onError;
	}

	/** Lets the views follow up to some entries, and all before them. */
	follow(through: ViewPosition): Promise<void> {
		if (this.#waiting !== undefined) {
			const { updates, events } = this.#waiting.through;
			this.#waiting.through = { updates: max(updates, through.updates), events: max(events, through.events) };
			return this.#waiting.done;
		}
		const done = this.#running
			.catch(() => undefined)
			.then(() => {
				const { through: all = through } = this.#waiting ?? {};
				this.#waiting = undefined;
				return this.#run(all);
			});
		// Who waits for it hears of a failure.
		done.catch(() => undefined);
		this.#waiting = { done, through };
		this.#running = done;
		return done;
	}

	/** Lets the views follow after a while. */
	schedule(): void {
		if (this.#isClosed) return;
		this.#timer ??= setTimeout(() => {
			this.#timer = undefined;
			this.follow({ updates: 0n, events: 0n }).catch(this.#onError);
		}, FOLLOW_DELAY).unref();
	}

	async close(): Promise<void> {
		this.#isClosed = true;
		clearTimeout(this.#timer);
		await this.#running.catch(() => undefined);
	}

	async #run(through: ViewPosition): Promise<void> {
		const ahead = new FollowedAhead();
		for (let hasMore = !this.#isClosed; hasMore; )
			hasMore = await this.#connections.transaction((transaction) =>
				followViews(postgresSession(transaction), through, new Set(), ahead),
			);
	}
}
