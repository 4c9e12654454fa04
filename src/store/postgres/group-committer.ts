import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { AppendOutcome } from "../group-plan.ts";
import type { NewestSequences } from "../sequence-log.ts";

import { finalOutcome, isAcknowledgement, precedingOf } from "./append-results.ts";
import type { Connections } from "./connections.ts";
import { CommitUnknown } from "./failures.ts";
import { planLocked, type SentRequest } from "./group.ts";
import { endGroup, touchWriter } from "./writers.ts";
import { groupQueries } from "./written-group.ts";

/** Maximum time for finding out the outcome of a commit that was not confirmed, in milliseconds. */
const OUTCOME_TIMEOUT = 15_000;
/** Milliseconds between two attempts to find out that outcome. */
const OUTCOME_RETRY_DELAY = 200;

/** Commits groups, one at a time. A row of `writers` that belongs to the committer identifies its last group. */
export class GroupCommitter {
	readonly #connections: Connections;
	readonly #id = randomUUID();
	/** Number of the last group; always even. */
	#group = 0n;

	constructor(connections: Connections) {
		this.#connections = connections;
	}

	/**
	 * Writes a group in one transaction. If the commit is not confirmed, finds out whether it took place, and writes the
	 * group again if not, without the requests that may no longer be written then.
	 *
	 * @returns the outcomes, in the order of the requests
	 * @throws {CommitUnknown} when the outcome cannot be found out in time
	 * @throws {ServiceError} when the group was rolled back
	 */
	async commit(requests: readonly SentRequest[]): Promise<AppendOutcome[]> {
		for (;;) {
			// The odd number between two groups marks the first one as given up: see `endGroup`.
			this.#group += 2n;
			let outcomes: readonly AppendOutcome[] = [];
			let preceding: NewestSequences | undefined;
			try {
				await this.#connections.transaction(async (transaction) => {
					const planned = await planLocked(transaction, requests);
					outcomes = planned.outcomes;
					const { updates, events, heads, activities, gaps, senders } = planned.written;
					const [id, group] = [this.#id, this.#group];
					if (updates.length + events.length + heads.size + activities.size + gaps.size + senders.size === 0) {
						// The original of a duplicate may not be on the standby yet. A commit that writes waits until the standby has it.
						if (outcomes.some(isAcknowledgement)) await transaction.commit(touchWriter(id));
						return;
					}
					const queries = await groupQueries(planned.written, { id, group, notifies: this.#connections.notifies });
					const rows = await transaction.commit(...queries);
					preceding = precedingOf(rows.at(-1)?.[0]);
				});
			} catch (error) {
				if (!(error instanceof CommitUnknown)) throw error;
				preceding = await this.#findOutcome(error);
				// The group was not committed, and no longer can be.
				if (preceding === undefined) continue;
			}
			return outcomes.map((outcome) => finalOutcome(outcome, preceding));
		}
	}

	/**
	 * Finds out whether a group was committed whose commit was not confirmed. Writing the writer's row waits for the end of
	 * the transaction that wrote the row before. If the group's transaction has not written the row by then, it will fail
	 * when it does.
	 *
	 * @returns the newest sequences before the group; undefined when it was not committed
	 * @throws `unknown` when the database does not respond in time
	 */
	async #findOutcome(unknown: CommitUnknown): Promise<NewestSequences | undefined> {
		const [id, group] = [this.#id, this.#group];
		for (const until = performance.now() + OUTCOME_TIMEOUT; ; ) {
			try {
				const [rows] = await this.#connections.transaction((transaction) =>
					transaction.commit(touchWriter(id), endGroup(id, group)),
				);
				const row = rows?.[0];
				return row?.last_group === group ? precedingOf(row) : undefined;
			} catch {
				if (performance.now() > until) throw unknown;
				await delay(OUTCOME_RETRY_DELAY);
			}
		}
	}
}
