import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { ServiceError } from "../../errors.ts";
import type { AnsweredGroup } from "../../threads/protocol.ts";
import type { CallEnd, ThreadLog, ThreadObserver, ThreadQueue } from "../../threads/worker-thread.ts";
import { isLate, LATE } from "../late.ts";
import type { PossibleRepetition } from "../repetition.ts";
import type { Appended, AppendedEvents } from "../store.ts";
import { bigint, type Row } from "../values.ts";
import type { Connections } from "./connections.ts";
import { CommitUnknown } from "./failures.ts";
import { conversationOf, type GroupAnswer, type GroupRequest, planGroup } from "./group.ts";
import { PROVISIONAL } from "./numbered-sql.ts";
import { endGroup, touchWriter } from "./writers.ts";
import { groupQueries } from "./written-group.ts";

/** Most appends in one group, so that a transaction takes few locks. */
const MAX_GROUP_REQUESTS = 256;
/** Most bytes of records and events in a group of several appends, so that a large one does not hold up small ones. */
const MAX_GROUP_BYTES = 2 ** 20;
/** Groups that are written at a time: see {@link Appender}. */
const MAX_GROUPS = 2;
/** How long a group may hold up those that wait before they make up another one, in milliseconds. */
const PATIENCE = 250;
/** How long the outcome of a commit without an answer is looked for, and the pause between two attempts, in milliseconds. */
const LONGEST_SEARCH = 15_000;
const SEARCH_PAUSE = 200;
/**
 * How long after its first attempt a group may be written again, in milliseconds. Later its senders may have given up and
 * sent the same, and then something newer, to another replica; the agent server waits 30 seconds.
 */
const LONGEST_REPEATING = 20_000;

/** What an observer knows the appender by: what a store with threads has one of. */
const OBSERVED_AS = "writer";

interface Waiting {
	readonly id: number;
	/** When it came, as performance.now() counts. */
	readonly since: number;
	readonly ended: CallEnd | undefined;
	readonly request: GroupRequest;
	readonly bytes: number;
	readonly resolve: (answer: GroupAnswer) => void;
	readonly reject: (error: unknown) => void;
}

/** A row of `writers`, for one group at a time. */
interface Writer {
	readonly id: string;
	group: bigint;
}

/** The numbers that those of a group follow. */
interface First {
	readonly update: bigint;
	readonly event: bigint;
}

/**
 * Appends what waits in groups, each in one transaction. Appends to one conversation keep their order.
 *
 * While a group is written, another one begins only if it is full, or if the first one takes long: what a group costs
 * beside its rows is then shared by more of them, and a conversation that another process has locked holds up few others.
 */
export class Appender {
	readonly #connections: Connections;
	readonly #log: ThreadLog;
	readonly #onAppended: (newest: { readonly updates: bigint; readonly events: bigint }) => void;
	readonly #observer: ThreadObserver | undefined;
	readonly #free: Writer[] = Array.from({ length: MAX_GROUPS }, () => ({ id: randomUUID(), group: 0n }));
	#lastId = 0;
	#waiting: Waiting[] = [];
	readonly #writing = new Set<Waiting>();
	/** Conversations of the groups that are being written. */
	readonly #busy = new Set<string>();
	#scheduled = false;
	/** Whether the group that began last takes long. */
	#isSlow = false;

	/** @param onAppended told the newest sequences that a group added, 0 for a log that it did not add to */
	constructor(
		connections: Connections,
		log: ThreadLog,
		onAppended: (newest: { readonly updates: bigint; readonly events: bigint }) => void,
		observer?: ThreadObserver,
	) {
		this.#connections = connections;
		this.#log = log;
		this.#onAppended = onAppended;
		this.#observer = observer;
		observer?.added(OBSERVED_AS, () => this.#queue());
	}

	/** Appends an update or a batch of events. Resolves when it is on disk. */
	append(request: GroupRequest): Promise<GroupAnswer> {
		const ended = this.#observer?.called(OBSERVED_AS, "update" in request ? "append" : "appendEvents");
		return new Promise((resolve, reject) => {
			this.#lastId += 1;
			const since = performance.now();
			this.#waiting.push({ id: this.#lastId, since, ended, request, bytes: bytesOf(request), resolve, reject });
			this.#schedule();
		});
	}

	#queue(): ThreadQueue {
		const pending = [...this.#writing, ...this.#waiting];
		const oldest = pending.reduce((since, waiting) => Math.min(since, waiting.since), Number.POSITIVE_INFINITY);
		return { calls: pending.length, age: pending.length === 0 ? 0 : performance.now() - oldest };
	}

	/** Starts groups once what comes in this turn of the event loop is there. */
	#schedule(): void {
		if (this.#scheduled) return;
		this.#scheduled = true;
		setImmediate(() => {
			this.#scheduled = false;
			while (this.#waiting.length > 0 && this.#mayBegin()) {
				const writer = this.#free.pop();
				if (writer === undefined) return;
				const group = this.#takeGroup();
				if (group.length === 0) {
					this.#free.push(writer);
					return;
				}
				void this.#write(group, writer);
			}
		});
	}

	#mayBegin(): boolean {
		if (this.#free.length === MAX_GROUPS || this.#isSlow) return true;
		const bytes = this.#waiting.reduce((size, waiting) => size + waiting.bytes, 0);
		return this.#waiting.length >= MAX_GROUP_REQUESTS || bytes >= MAX_GROUP_BYTES;
	}

	/**
	 * Takes the first requests that wait. Refuses those whose sender no longer waits; leaves those whose conversation is being
	 * written or has an earlier one left.
	 */
	#takeGroup(): Waiting[] {
		const group: Waiting[] = [];
		const left: Waiting[] = [];
		const blocked = new Set(this.#busy);
		const now = Date.now();
		let bytes = 0;
		let isFull = false;
		for (const waiting of this.#waiting) {
			const { request } = waiting;
			if (isLate("update" in request ? request.update : request, now)) {
				refuse(waiting, LATE);
				continue;
			}
			const conversation = conversationOf(request);
			isFull ||= group.length === MAX_GROUP_REQUESTS || (group.length > 0 && bytes + waiting.bytes > MAX_GROUP_BYTES);
			if (isFull || blocked.has(conversation)) {
				blocked.add(conversation);
				left.push(waiting);
			} else {
				group.push(waiting);
				bytes += waiting.bytes;
			}
		}
		this.#waiting = left;
		return group;
	}

	async #write(group: readonly Waiting[], writer: Writer): Promise<void> {
		for (const waiting of group) {
			this.#busy.add(conversationOf(waiting.request));
			this.#writing.add(waiting);
		}
		this.#isSlow = false;
		const slow = setTimeout(() => {
			this.#isSlow = true;
			this.#schedule();
		}, PATIENCE);
		try {
			await this.#answer(group, writer);
		} finally {
			clearTimeout(slow);
			for (const waiting of group) {
				this.#busy.delete(conversationOf(waiting.request));
				this.#writing.delete(waiting);
			}
			this.#free.push(writer);
			this.#schedule();
		}
	}

	/** Writes a group and answers its requests. */
	async #answer(group: readonly Waiting[], writer: Writer): Promise<void> {
		const began = performance.now();
		const answered = (): AnsweredGroup => {
			const startedAt = performance.timeOrigin + began;
			const told = { ids: group.map(({ id }) => id), startedAt, duration: performance.now() - began };
			this.#observer?.grouped(OBSERVED_AS, told);
			return told;
		};
		try {
			const answers = await this.#commit(
				group.map(({ request }) => request),
				writer,
			);
			const told = answered();
			for (const [n, { resolve, ended }] of group.entries()) {
				ended?.(undefined, told);
				resolve(answers[n]);
			}
		} catch (error) {
			const failure = serviceError(error);
			const told = answered();
			if (group.length > 1 && failure.kind !== "unavailable") {
				// A request failed for a reason of its own. It is found by halves, so that it costs few transactions.
				const middle = Math.ceil(group.length / 2);
				await this.#answer(group.slice(0, middle), writer);
				await this.#answer(group.slice(middle), writer);
				return;
			}
			this.#log.error({ err: failure, operation: "append", count: group.length }, "the store failed");
			for (const waiting of group) refuse(waiting, failure, told);
		}
	}

	async #commit(requests: readonly GroupRequest[], writer: Writer): Promise<GroupAnswer[]> {
		for (const until = performance.now() + LONGEST_REPEATING; ; ) {
			// The number between two groups stands for the end of the first one.
			writer.group += 2n;
			let answers: readonly GroupAnswer[] = [];
			let first: First | undefined;
			try {
				await this.#connections.transaction(async (transaction) => {
					const planned = await planGroup(transaction, requests);
					answers = planned.answers;
					const { updates, events, states, activities } = planned.written;
					const { id, group } = writer;
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
				first = await this.#find(writer, error);
				if (first === undefined) {
					// It was not committed, and will not be.
					if (performance.now() > until) throw error;
					continue;
				}
			}
			const real = answers.map((answer) => realAnswer(answer, first));
			this.#announce(real);
			return real;
		}
	}

	/**
	 * Finds out whether a group was committed whose commit was not answered. To write the writer's row is to wait for the end
	 * of the transaction that wrote it before. If the group's transaction has not come so far, it never will.
	 *
	 * @returns undefined when it was not
	 * @throws `unknown` when the database does not answer in time
	 */
	async #find({ id, group }: Writer, unknown: CommitUnknown): Promise<First | undefined> {
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

	#announce(answers: readonly GroupAnswer[]): void {
		let [updates, events] = [0n, 0n];
		for (const answer of answers) {
			if (answer === undefined) continue;
			if ("stored" in answer) {
				events = max(events, answer.newest);
				updates = max(updates, answer.updateSequence ?? 0n);
			} else if ("sequence" in answer && !answer.repeated) updates = max(updates, answer.sequence);
		}
		this.#onAppended({ updates, events });
	}
}

function refuse({ ended, reject }: Waiting, error: ServiceError, group?: AnsweredGroup): void {
	ended?.(error, group);
	reject(error);
}

function firstOf(row: Row | undefined): First {
	return { update: bigint(row?.first_update), event: bigint(row?.first_event) };
}

/** An answer with the numbers that were taken. */
function realAnswer(answer: GroupAnswer, first: First | undefined): GroupAnswer {
	const real = (number: bigint, before: bigint | undefined) => {
		if (number <= PROVISIONAL) return number;
		if (before === undefined) throw new Error("the numbers of a group are missing");
		return before + (number - PROVISIONAL);
	};
	if (answer === undefined) return undefined;
	if ("stored" in answer) {
		const { newest, updateSequence } = answer;
		return {
			...answer,
			newest: real(newest, first?.event),
			updateSequence: updateSequence === undefined ? undefined : real(updateSequence, first?.update),
		};
	}
	return "sequence" in answer
		? { ...answer, sequence: real(answer.sequence, first?.update) }
		: { ...answer, possiblyRepeats: real(answer.possiblyRepeats, first?.update) };
}

/** Whether an answer says that something is stored. */
function isAcknowledgement(answer: GroupAnswer): boolean {
	return answer !== undefined && !("possiblyRepeats" in answer);
}

function bytesOf(request: GroupRequest): number {
	if ("update" in request) return request.update.record.bytes.byteLength + request.update.summary.byteLength;
	const { events, live } = request;
	const record = live?.version?.record.bytes.byteLength ?? 0;
	return events.reduce((size, { text }) => size + text.byteLength, record);
}

function serviceError(error: unknown): ServiceError {
	if (error instanceof ServiceError) return error;
	return new ServiceError("internal", "the store failed at this request", { cause: error });
}

function max(one: bigint, other: bigint): bigint {
	return one > other ? one : other;
}

/** What an append of an update is answered. */
export function updateAnswer(answer: GroupAnswer): Appended | PossibleRepetition {
	if (answer === undefined || "stored" in answer) throw new Error("an update has another answer than a batch");
	return answer;
}

/** What an append of a batch is answered. */
export function batchAnswer(answer: GroupAnswer): AppendedEvents | undefined {
	if (answer !== undefined && !("stored" in answer)) throw new Error("a batch has another answer than an update");
	return answer;
}
