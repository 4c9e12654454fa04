import { isPast, SENDER_GONE, ServiceError } from "../../errors.ts";
import { failureOf, type Outcome } from "../../threads/protocol.ts";
import { serve } from "../../threads/serve.ts";
import { planAppends } from "../append-group.ts";
import { assignOwner } from "../assign-owner.ts";
import type { ReturnedSpace } from "../compaction.ts";
import {
	type AppendRequest,
	bytesOf,
	type GroupRequest,
	type PossibleDuplicate,
	type SenderDeadline,
} from "../duplicates.ts";
import type { AppendedEvents, AppendedUpdate, NewEvents } from "../entries.ts";
import { erase } from "../erase.ts";
import type { Erased, EraseRequest } from "../erasure.ts";
import type { AppendOutcome } from "../group-plan.ts";
import type { OwnerAssignment } from "../owners.ts";
import { packRecord } from "../record-column.ts";
import { callsOf } from "../session.ts";
import { isRepeatable, writes } from "../store.ts";
import { type FollowGoal, FollowTimer, NOTHING, type ViewName } from "../views/follow.ts";
import { resetViews, ViewFollower } from "../views/views.ts";
import {
	type DatabaseOptions,
	isDatabaseFailure,
	LOCK_TIMEOUT,
	openFiles,
	openForWriting,
	returnSpace,
	transaction,
} from "./database.ts";
import { mustPurge, notePurge, purge } from "./purge.ts";
import { createSchema } from "./schema.ts";
import { sqliteSession } from "./session.ts";
import { Statements } from "./sql.ts";

/** Entry point of the writer thread. Appends that wait for it share one transaction. */

/**
 * Maximum number of bytes of records and events in a transaction of several appends, so that a large append does not
 * delay small ones.
 */
const MAX_GROUP_BYTES = 2 ** 20;

/**
 * Milliseconds for which a commit proves that the next one can succeed, so that checks of an idle service seldom write.
 */
const PROOF_MILLISECONDS = 4_500;

/** Milliseconds that a step of the views should take, because appends wait for it. */
const STEP_MILLISECONDS = 2;
/** Maximum number of steps that the views follow the logs when the store is closed. */
const MAX_STEPS_AT_CLOSE = 1_000;

/** The calls that the writer thread answers. */
export type WriterCalls = ReturnType<typeof writer>["methods"] & Appends;

/** The calls that are answered in groups. */
interface Appends {
	append(request: AppendRequest & SenderDeadline): AppendedUpdate | PossibleDuplicate;
	/** Returns undefined in the case that `Store.appendEvents` describes. */
	appendEvents(batch: NewEvents & SenderDeadline): AppendedEvents | undefined;
}

function writer(options: DatabaseOptions) {
	const database = openForWriting(options);
	const statements = new Statements(database);
	const session = sqliteSession(statements);
	createSchema(database);
	const check = database.prepare("UPDATE state SET checks = checks + 1");
	// It creates all files.
	check.run();
	const requireInPlace = openFiles(options.path);
	const beginPurge = () => purge(database, options.lockTimeout ?? LOCK_TIMEOUT);
	let purging = mustPurge(database) ? beginPurge() : undefined;
	/** Why the files were not in their places at the last check; undefined while they are. */
	let misplaced: unknown;
	/** Time of the last successful commit, as `performance.now()` counts; undefined after a failure. */
	let committedAt: number | undefined;

	/** Runs `work` in one transaction, which is on disk when it resolves. */
	async function writeInSession<Result>(work: () => Promise<Result>): Promise<Result> {
		if (misplaced !== undefined) throw misplaced;
		return await transaction(database, "BEGIN IMMEDIATE", work);
	}

	/** As {@link writeInSession}, for work that proves whether the next append can be stored. */
	async function write<Result>(work: () => Promise<Result>): Promise<Result> {
		committedAt = undefined;
		const result = await writeInSession(work);
		committedAt = performance.now();
		return result;
	}

	/** Appends a group. The deadlines are checked in the transaction, because the wait for the database's lock may be long. */
	async function append(requests: AppendCalls): Promise<readonly AppendOutcome[]> {
		const refusalOf = ({ senderDeadline }: SenderDeadline) => (isPast(senderDeadline) ? SENDER_GONE : undefined);
		const { written, outcomes } = await write(async () => {
			const group = await planAppends(session, requests, refusalOf, packRecord);
			await group.write?.();
			return group;
		});
		follower.append(written);
		return outcomes;
	}

	const timer = new FollowTimer();
	const follower = new ViewFollower((work) => writeInSession(() => work(session)), STEP_MILLISECONDS);

	/**
	 * Lets the views follow the logs, step by step. What they write need not be on disk before the answer: after a crash
	 * they follow again.
	 *
	 * @returns whether there may be more to do
	 */
	async function follow(goal: FollowGoal, steps = Number.POSITIVE_INFINITY): Promise<boolean> {
		return await withoutWaitingForDisk(async () => {
			for (let step = 0; step < steps; step++) if (!(await follower.step(goal))) return false;
			return true;
		});
	}

	/** Runs work whose commits need not be on disk. */
	async function withoutWaitingForDisk<Result>(work: () => Promise<Result>): Promise<Result> {
		database.exec("PRAGMA synchronous = NORMAL");
		try {
			return await work();
		} finally {
			database.exec("PRAGMA synchronous = FULL");
		}
	}

	/** Checks that the next start will find the files. If not, nothing is written until a later check succeeds. */
	function verifyFiles(): void {
		try {
			requireInPlace();
			misplaced = undefined;
		} catch (error) {
			misplaced = error;
			committedAt = undefined;
			try {
				// The next start may not find the log.
				database.exec("PRAGMA wal_checkpoint(FULL)");
			} catch {
				// The caller gets the error that a file is not at its path.
			}
			throw error;
		}
	}

	/** Does a step of `Store.purge`, from the beginning after a failure. Returns whether there is another one to do now. */
	function purgeStep(): boolean {
		try {
			return purging?.next().value ?? false;
		} catch (error) {
			purging = beginPurge();
			throw error;
		}
	}

	return {
		methods: {
			assignOwner: (assignment: OwnerAssignment) =>
				writeInSession(async () => (await assignOwner(session, assignment)).length),
			async erase(request: EraseRequest): Promise<Erased | undefined> {
				await follow(NOTHING);
				const erased = await writeInSession(async () => {
					const found = await erase(session, request);
					if (found !== undefined) notePurge(statements);
					return found;
				});
				if (erased !== undefined) purging = beginPurge();
				return erased;
			},
			/** Does a step of the views. Returns whether there may be more to do for the goal. */
			follow(goal: FollowGoal): Promise<boolean> {
				timer.onRead();
				return follow(goal, 1);
			},
			async resetViews(views: readonly ViewName[] | undefined): Promise<void> {
				await writeInSession(() => resetViews(session, views));
				follower.restart();
			},
			purge(): boolean {
				if (misplaced !== undefined) throw misplaced;
				return purgeStep();
			},
			/** Checks that the next append can be stored. */
			async check(): Promise<void> {
				verifyFiles();
				try {
					// What a reader, a stop of the service or a failure has kept.
					purgeStep();
				} catch {
					// The next check tries again. It fails itself when nothing can be written.
				}
				// Only a commit that reaches the disk proves that the next append can be stored.
				if (committedAt === undefined || performance.now() - committedAt > PROOF_MILLISECONDS)
					await write(async () => check.run());
			},
			async returnSpace(): Promise<ReturnedSpace> {
				const returned = await write(async () => returnSpace(database));
				// Only a checkpoint makes the file smaller.
				if (!returned.hasMore) database.exec("PRAGMA wal_checkpoint(PASSIVE)");
				return returned;
			},
			...callsOf(writes, (name, work) =>
				isRepeatable(name)
					? withoutWaitingForDisk(() => writeInSession(() => work(session)))
					: writeInSession(() => work(session)),
			),
		},
		group: {
			names: ["append", "appendEvents"] satisfies (keyof Appends)[],
			maxBytes: MAX_GROUP_BYTES,
			bytesOf,
			answer: (requests: AppendCalls) => appendAll(append, requests),
		},
		background: {
			afterCalls: (start: () => void) => timer.onAppend(start, follower.waiting),
			run: async () => ((await follow("round", 1)) ? timer.pause(follower.waiting) : undefined),
		},
		async close() {
			timer.stop();
			// So the next start need not. A failure leaves it to that.
			await follow(NOTHING, MAX_STEPS_AT_CLOSE).catch(() => undefined);
			database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
			database.close();
		},
	};
}

serve(writer);

type AppendCalls = readonly (GroupRequest & SenderDeadline)[];

/** Appends a group in one transaction. Returns the outcomes, in the order of the requests, once it is on disk. */
async function appendAll(
	append: (requests: AppendCalls) => Promise<readonly AppendOutcome[]>,
	requests: AppendCalls,
): Promise<Outcome[]> {
	try {
		return (await append(requests)).map((outcome) =>
			outcome instanceof ServiceError ? { failure: failureOf(outcome) } : { value: outcome },
		);
	} catch (error) {
		const failure = failureOf(error);
		if (requests.length === 1 || isDatabaseFailure(failure)) return requests.map(() => ({ failure }));
		// The failure concerns one request only. Each is tried alone, so that the others are stored.
		const outcomes: Outcome[] = [];
		for (const request of requests) outcomes.push(...(await appendAll(append, [request])));
		return outcomes;
	}
}
