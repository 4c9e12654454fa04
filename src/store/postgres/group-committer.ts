import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { GroupRequest } from "../repetition.ts";
import type { Connections } from "./connections.ts";
import { CommitUnknown } from "./failures.ts";
import { type GroupAnswer, planGroup } from "./group.ts";
import { firstOf, isAcknowledgement, realAnswer } from "./group-answers.ts";
import type { Newest } from "./log.ts";
import { endGroup, touchWriter } from "./writers.ts";
import { groupQueries } from "./written-group.ts";

/** How long the outcome of a commit without an answer is looked for, and the pause between two attempts, in milliseconds. */
const LONGEST_SEARCH = 15_000;
const SEARCH_PAUSE = 200;
/**
 * How long after its first attempt a group may be written again, in milliseconds. Later its senders may have given up and
 * sent the same, and then something newer, to another replica; the agent server waits 30 seconds.
 */
const LONGEST_REPEATING = 20_000;

/** Commits groups, one at a time, and knows each of them by a row of `writers` that is its own. */
export class GroupCommitter {
	readonly #connections: Connections;
	readonly #id = randomUUID();
	/** Number of the last group. */
	#group = 0n;

	constructor(connections: Connections) {
		this.#connections = connections;
	}

	/**
	 * Writes a group in one transaction, and finds out whether it was committed when the answer to that is lost.
	 *
	 * @throws {CommitUnknown} when that cannot be found out in time, or the group was not committed and is too old to be
	 *   written again
	 * @throws {ServiceError} when the group was rolled back
	 */
	async commit(requests: readonly GroupRequest[]): Promise<GroupAnswer[]> {
		for (const until = performance.now() + LONGEST_REPEATING; ; ) {
			// The number between two groups stands for the end of the first one.
			this.#group += 2n;
			let answers: readonly GroupAnswer[] = [];
			let first: Newest | undefined;
			try {
				await this.#connections.transaction(async (transaction) => {
					const planned = await planGroup(transaction, requests);
					answers = planned.answers;
					const { updates, events, states, activities } = planned.written;
					const [id, group] = [this.#id, this.#group];
					if (updates.length + events.length + states.size + activities.size === 0) {
						// What is repeated may be on this server only: a commit that writes waits for the standby to have it.
						if (answers.some(isAcknowledgement)) await transaction.commit(touchWriter(id));
						return;
					}
					const queries = await groupQueries(planned.written, { id, group, notifies: this.#connections.notifies });
					const rows = await transaction.commit(...queries);
					first = firstOf(rows.at(-1)?.[0]);
				});
			} catch (error) {
				if (!(error instanceof CommitUnknown)) throw error;
				first = await this.#find(error);
				if (first === undefined) {
					// It was not committed, and will not be.
					if (performance.now() > until) throw error;
					continue;
				}
			}
			return answers.map((answer) => realAnswer(answer, first));
		}
	}

	/**
	 * Finds out whether a group was committed whose commit was not answered. To write the writer's row is to wait for the end
	 * of the transaction that wrote it before. If the group's transaction has not come so far, it never will.
	 *
	 * @returns undefined when it was not
	 * @throws `unknown` when the database does not answer in time
	 */
	async #find(unknown: CommitUnknown): Promise<Newest | undefined> {
		const [id, group] = [this.#id, this.#group];
		for (const until = performance.now() + LONGEST_SEARCH; ; ) {
			try {
				const [rows] = await this.#connections.transaction((transaction) =>
					transaction.commit(touchWriter(id), endGroup(id, group)),
				);
				const row = rows?.[0];
				return row?.last_group === group ? firstOf(row) : undefined;
			} catch {
				if (performance.now() > until) throw unknown;
				await delay(SEARCH_PAUSE);
			}
		}
	}
}
