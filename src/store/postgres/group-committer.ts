import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { type CallSignal, isSenderGone, SENDER_GONE } from "../../call-signal.ts";
import { ServiceError } from "../../errors.ts";
import type { GroupRequest, PossibleDuplicate } from "../duplicates.ts";
import type { AppendedEvents, AppendedUpdate } from "../entries.ts";
import { completePlan, groupQuery } from "../group.ts";
import { type AppendOutcome, type AppendResult, type GroupPlan, planGroup } from "../group-plan.ts";
import type { NewestSequences } from "../sequence-log.ts";
import { bigint, max, type Row } from "../values.ts";
import type { Connections } from "./connections.ts";
import { CommitUnknown } from "./failures.ts";
import { readForPlan, readKnown } from "./known.ts";
import { commitSpread } from "./spread-group.ts";
import type { Query, Session } from "./transaction.ts";
import { groupQueries, PROVISIONAL } from "./written-group.ts";

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
					const { notifies } = this.#connections;
					const writer = { id, group, notifies };
					preceding = (await transaction.isDistributed())
						? await commitSpread(transaction, planned.written, writer)
						: precedingOf((await transaction.commit(...(await groupQueries(planned.written, writer)))).at(-1)?.[0]);
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

/** Until when a request may be written. */
export interface WriteLimits {
	/** Signal of the sender. */
	readonly signal: CallSignal | undefined;
	/** Time by performance.now() from which on the sender may have given up without a sign. */
	readonly until: number;
}

/** A request to append. */
export type SentRequest = GroupRequest & WriteLimits;

/** The error for a request that has waited for so long that its sender may have given up. */
const TOO_LATE = new ServiceError("unavailable", "the request could not be stored in time");

/**
 * Locks the conversations of a group, reads their state, and plans the group with provisional sequences. A request whose
 * sender no longer waits, or may have given up, changes nothing. The sender may have sent the same record to another
 * replica, and a newer one after it. From the time of the locks on, no other replica can store them before this group.
 */
async function planLocked(session: Session, requests: readonly SentRequest[]): Promise<GroupPlan> {
	const known = await readKnown(session, groupQuery(requests));
	const planning = planGroup(requests, known, { updates: PROVISIONAL, events: PROVISIONAL }, refusalOf);
	return await completePlan(planning, (reads) => readForPlan(session, reads));
}

function refusalOf({ signal, until }: WriteLimits): ServiceError | undefined {
	if (isSenderGone(signal)) return SENDER_GONE;
	return performance.now() > until ? TOO_LATE : undefined;
}

/** Returns the newest sequences before a group, from the result of its last statement or its row of `writers`. */
function precedingOf(row: Row | undefined): NewestSequences {
	return { updates: bigint(row?.first_update), events: bigint(row?.first_event) };
}

/**
 * Returns an outcome with the final sequences in place of provisional ones.
 *
 * @param preceding the newest sequences before the group
 */
function finalOutcome(outcome: AppendOutcome, preceding: NewestSequences | undefined): AppendOutcome {
	const final = (number: bigint, before: bigint | undefined) => {
		if (number <= PROVISIONAL) return number;
		if (before === undefined) throw new Error("the sequences before the group are missing");
		return before + (number - PROVISIONAL);
	};
	if (outcome === undefined || outcome instanceof ServiceError) return outcome;
	if ("stored" in outcome) {
		const { newest, updateSequence } = outcome;
		return {
			...outcome,
			newest: final(newest, preceding?.events),
			updateSequence: updateSequence === undefined ? undefined : final(updateSequence, preceding?.updates),
		};
	}
	return "sequence" in outcome
		? { ...outcome, sequence: final(outcome.sequence, preceding?.updates) }
		: { ...outcome, candidateSequence: final(outcome.candidateSequence, preceding?.updates) };
}

/** Returns whether an outcome acknowledges that something is stored. */
function isAcknowledgement(outcome: AppendOutcome): boolean {
	return outcome !== undefined && !(outcome instanceof ServiceError) && !("candidateSequence" in outcome);
}

/** Returns the newest sequences that a group added, from its outcomes; 0 for a log that it did not add to. */
export function newestOf(outcomes: readonly AppendOutcome[]): NewestSequences {
	let [updates, events] = [0n, 0n];
	for (const outcome of outcomes) {
		if (outcome === undefined || outcome instanceof ServiceError) continue;
		if ("stored" in outcome) {
			events = max(events, outcome.newest);
			updates = max(updates, outcome.updateSequence ?? 0n);
		} else if ("sequence" in outcome && !outcome.duplicate) updates = max(updates, outcome.sequence);
	}
	return { updates, events };
}

/** Narrows the result of an append to that of an update. */
export function updateResult(result: AppendResult): AppendedUpdate | PossibleDuplicate {
	if (result === undefined || "stored" in result) throw new Error("an append of an update has the result of a batch");
	return result;
}

/** Narrows the result of an append to that of a batch. */
export function batchResult(result: AppendResult): AppendedEvents | undefined {
	if (result !== undefined && !("stored" in result))
		throw new Error("an append of a batch has the result of an update");
	return result;
}

/** Returns the query that updates the time in a writer's row, or inserts the row without a group, and returns the row. */
export function touchWriter(id: string): Query {
	return {
		text: `
			INSERT INTO conversation_updates.writers (id, last_group, first_update, first_event, written_at)
			VALUES ($1, 0, 0, 0, now())
			ON CONFLICT (id) DO UPDATE SET written_at = excluded.written_at RETURNING *
		`,
		values: [id],
	};
}

/** Returns the query that gives up a group unless it was committed: later statements of the group will fail. */
function endGroup(id: string, group: bigint): Query {
	return {
		text: `
			UPDATE conversation_updates.writers SET last_group = $2::bigint + 1 WHERE id = $1 AND last_group < $2::bigint
		`,
		values: [id, group],
	};
}

/** Deletes the rows of writers that wrote nothing for a day, such as those of processes that have ended. */
export const deleteIdleWriters: Query = {
	text: "DELETE FROM conversation_updates.writers WHERE written_at < now() - interval '1 day'",
};
