import { type CallSignal, isSenderGone, SENDER_GONE, ServiceError } from "../../errors.ts";
import type { ThreadLogger, ThreadObserver, ThreadQueue } from "../../threads/worker-thread.ts";
import { planAppends } from "../append-group.ts";
import { type AppendRequest, bytesOf, type GroupRequest, type PossibleDuplicate } from "../duplicates.ts";
import type { AppendedEvents, AppendedUpdate, NewEvents } from "../entries.ts";
import { conversationOf } from "../group.ts";
import type { AppendOutcome, AppendResult } from "../group-plan.ts";
import { packRecordAsync } from "../record-column.ts";
import type { NewestSequences } from "../sequence-log.ts";
import { byServer } from "./citus.ts";
import type { Connections } from "./connections.ts";
import { DatabaseError, serviceError } from "./failures.ts";
import { notifyQueries, touchState } from "./log.ts";
import { postgresSession } from "./session.ts";

/** Maximum number of appends in one group. It bounds the locks that a transaction takes. */
const MAX_GROUP_REQUESTS = 256;
/** Maximum bytes of records and events in a group of several appends, so that a large append does not delay small ones. */
const MAX_GROUP_BYTES = 2 ** 20;
/** Maximum number of groups that are written at the same time: see {@link Appender}. */
const MAX_GROUPS = 2;
/** Milliseconds after which waiting requests form a second group, although the first one is still being written. */
const SECOND_GROUP_DELAY = 250;
/** Name of the appender in metrics: the same as that of the SQLite engine's writer thread. */
const OBSERVED_AS = "writer";

interface PendingRequest {
	/** Time of arrival, by performance.now(). */
	readonly arrivedAt: number;
	readonly request: SentRequest;
	readonly bytes: number;
	readonly resolve: (result: AppendResult) => void;
	readonly reject: (error: unknown) => void;
}

/**
 * Appends updates and batches of events in groups, each in one transaction. Appends to one conversation keep their order.
 *
 * While a group is being written, a second one begins only if it is full or if the first one takes long. Larger groups
 * share the fixed cost of a transaction among more requests. The second group lets other conversations go on when another
 * process has locked a conversation of the first one.
 */
export class Appender {
	readonly #connections: Connections;
	readonly #logger: ThreadLogger;
	readonly #onAppended: (newest: NewestSequences) => void;
	readonly #observer: ThreadObserver | undefined;
	/** Number of groups that are being written. */
	#groups = 0;
	#waiting: PendingRequest[] = [];
	readonly #writing = new Set<PendingRequest>();
	/** Conversations of the groups that are being written. */
	readonly #busy = new Set<string>();
	#scheduled = false;
	/** Whether the group that began last took longer than {@link SECOND_GROUP_DELAY}. */
	#isSlow = false;

	/** @param onAppended called after each group with the newest sequences that it added */
	constructor(
		connections: Connections,
		log: ThreadLogger,
		onAppended: (newest: NewestSequences) => void,
		observer?: ThreadObserver,
	) {
		this.#connections = connections;
		this.#logger = log;
		this.#onAppended = onAppended;
		this.#observer = observer;
		observer?.onThread(OBSERVED_AS, () => this.#queue());
	}

	/** Appends an update or a batch of events. Resolves when it is on disk. */
	append(request: AppendRequest & WriteLimits): Promise<AppendedUpdate | PossibleDuplicate>;
	append(request: NewEvents & WriteLimits): Promise<AppendedEvents | undefined>;
	append(request: SentRequest): Promise<AppendResult> {
		return new Promise((resolve, reject) => {
			this.#waiting.push({ arrivedAt: performance.now(), request, bytes: bytesOf(request), resolve, reject });
			this.#schedule();
		});
	}

	#queue(): ThreadQueue {
		const pending = [...this.#writing, ...this.#waiting];
		const oldest = pending.reduce((min, request) => Math.min(min, request.arrivedAt), Number.POSITIVE_INFINITY);
		return { calls: pending.length, age: pending.length === 0 ? 0 : performance.now() - oldest };
	}

	/** Starts groups at the end of this turn of the event loop, so that requests which arrive together share a group. */
	#schedule(): void {
		if (this.#scheduled) return;
		this.#scheduled = true;
		setImmediate(() => {
			this.#scheduled = false;
			while (this.#waiting.length > 0 && this.#mayBegin()) {
				const group = this.#takeGroup();
				if (group.length === 0) return;
				void this.#write(group);
			}
		});
	}

	#mayBegin(): boolean {
		if (this.#groups === 0) return true;
		if (this.#groups === MAX_GROUPS) return false;
		if (this.#isSlow) return true;
		const bytes = this.#waiting.reduce((size, pending) => size + pending.bytes, 0);
		return this.#waiting.length >= MAX_GROUP_REQUESTS || bytes >= MAX_GROUP_BYTES;
	}

	/**
	 * Takes the first waiting requests out of the queue, as a group. Skips a request if its conversation is being written,
	 * or if an earlier request of that conversation was skipped.
	 */
	#takeGroup(): PendingRequest[] {
		const group: PendingRequest[] = [];
		const remaining: PendingRequest[] = [];
		const blocked = new Set(this.#busy);
		let bytes = 0;
		let isFull = false;
		for (const pending of this.#waiting) {
			const conversation = conversationOf(pending.request);
			isFull ||= group.length === MAX_GROUP_REQUESTS || (group.length > 0 && bytes + pending.bytes > MAX_GROUP_BYTES);
			if (isFull || blocked.has(conversation)) {
				blocked.add(conversation);
				remaining.push(pending);
			} else {
				group.push(pending);
				bytes += pending.bytes;
			}
		}
		this.#waiting = remaining;
		return group;
	}

	async #write(group: readonly PendingRequest[]): Promise<void> {
		this.#groups += 1;
		for (const pending of group) {
			this.#busy.add(conversationOf(pending.request));
			this.#writing.add(pending);
		}
		this.#isSlow = false;
		const timer = setTimeout(() => {
			this.#isSlow = true;
			this.#schedule();
		}, SECOND_GROUP_DELAY);
		try {
			await this.#answer(group);
		} finally {
			clearTimeout(timer);
			for (const pending of group) {
				this.#busy.delete(conversationOf(pending.request));
				this.#writing.delete(pending);
			}
			this.#groups -= 1;
			this.#schedule();
		}
	}

	/** Writes a group, and resolves or rejects its requests. */
	async #answer(group: readonly PendingRequest[]): Promise<void> {
		const began = performance.now();
		const reportGroup = (): void =>
			this.#observer?.onGroup({ size: group.length, duration: performance.now() - began });
		try {
			const { outcomes, newest } = await writeGroup(
				this.#connections,
				group.map(({ request }) => request),
			);
			if (newest !== undefined) this.#onAppended(newest);
			reportGroup();
			for (const [n, pending] of group.entries()) {
				const outcome = outcomes[n];
				if (outcome instanceof ServiceError) pending.reject(outcome);
				else pending.resolve(outcome);
			}
		} catch (error) {
			const failure = serviceError(error);
			reportGroup();
			if (failure instanceof DatabaseError && failure.isPartAway) {
				const parts = await this.#byServer(group).catch(() => [group]);
				if (parts.length > 1 && parts.flat().length === group.length) {
					for (const part of parts) await this.#answer(part);
					return;
				}
			}
			if (group.length > 1 && failure.kind !== "unavailable") {
				// One request makes the whole group fail. Halving the group isolates that request in few transactions.
				const middle = Math.ceil(group.length / 2);
				await this.#answer(group.slice(0, middle));
				await this.#answer(group.slice(middle));
				return;
			}
			this.#logger.error({ err: failure, operation: "append", count: group.length }, "the store failed");
			for (const pending of group) pending.reject(failure);
		}
	}

	/** Splits a group: each part has the requests whose conversations one server of Citus has, in their order. */
	async #byServer(group: readonly PendingRequest[]): Promise<PendingRequest[][]> {
		const ids = group.map(({ request }) => conversationOf(request));
		const servers = await this.#connections.read((session) => byServer(session, ids));
		return servers.map((of) => {
			const own = new Set(of);
			return group.filter(({ request }) => own.has(conversationOf(request)));
		});
	}
}

/**
 * Writes a group in one transaction.
 *
 * @returns the outcomes, in the order of the requests, and the newest sequences if the group has added entries
 * @throws {CommitUnknown} when the outcome is unknown; the senders repeat, and repetitions are recognised
 * @throws {ServiceError} when the group was rolled back
 */
function writeGroup(
	connections: Connections,
	requests: readonly SentRequest[],
): Promise<{ readonly outcomes: readonly AppendOutcome[]; readonly newest: NewestSequences | undefined }> {
	return connections.transaction(async (transaction) => {
		const session = postgresSession(transaction, true);
		const { outcomes, newest, write } = await planAppends(session, requests, refusalOf, packRecordAsync);
		if (write === undefined) {
			// The original of a duplicate may not be on the standby yet. A commit that writes waits until the standby has it.
			if (outcomes.some(isAcknowledgement)) await transaction.commit(touchState);
			return { outcomes, newest: undefined };
		}
		const payload = `${newest.updates} ${newest.events}`;
		const writing = Promise.allSettled([write(), session.saveSequences(newest)]);
		// It fails if one of these fails. Its error says whether the group can have been committed.
		await transaction.commit(...notifyQueries(connections.notifies, payload));
		await writing;
		return { outcomes, newest };
	});
}

/** Until when a request may be written. */
interface WriteLimits {
	/** Signal of the sender. */
	readonly signal: CallSignal | undefined;
	/** Time by performance.now() from which on the sender may have given up without a sign. */
	readonly until: number;
}

/** A request to append. */
type SentRequest = GroupRequest & WriteLimits;

/** The error for a request that has waited for so long that its sender may have given up. */
const TOO_LATE = new ServiceError("unavailable", "the request could not be stored in time");

/**
 * A request whose sender no longer waits, or may have given up, changes nothing. The sender may have sent the same record to
 * another replica, and a newer one after it. From the time of the locks on, no other replica can store them before this group.
 */
function refusalOf({ signal, until }: WriteLimits): ServiceError | undefined {
	if (isSenderGone(signal)) return SENDER_GONE;
	return performance.now() > until ? TOO_LATE : undefined;
}

/** Returns whether an outcome acknowledges that something is stored. */
function isAcknowledgement(outcome: AppendOutcome): boolean {
	return outcome !== undefined && !(outcome instanceof ServiceError) && !("candidateSequence" in outcome);
}
