import type { ServiceError } from "../../errors.ts";
import type { AnsweredGroup } from "../../threads/protocol.ts";
import type { CallEnd, ThreadLog, ThreadObserver, ThreadQueue } from "../../threads/worker-thread.ts";
import { isLate, LATE } from "../late.ts";
import type { GroupRequest } from "../repetition.ts";
import type { Connections } from "./connections.ts";
import { serviceError } from "./failures.ts";
import { conversationOf, type GroupAnswer } from "./group.ts";
import { newestOf } from "./group-answers.ts";
import { GroupCommitter } from "./group-committer.ts";
import type { Newest } from "./log.ts";

/** Most appends in one group, so that a transaction takes few locks. */
const MAX_GROUP_REQUESTS = 256;
/** Most bytes of records and events in a group of several appends, so that a large one does not hold up small ones. */
const MAX_GROUP_BYTES = 2 ** 20;
/** Groups that are written at a time: see {@link Appender}. */
const MAX_GROUPS = 2;
/** How long a group may hold up those that wait before they make up another one, in milliseconds. */
const PATIENCE = 250;
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

/**
 * Appends what waits in groups, each in one transaction. Appends to one conversation keep their order.
 *
 * While a group is written, another one begins only if it is full, or if the first one takes long: what a group costs
 * beside its rows is then shared by more of them, and a conversation that another process has locked holds up few others.
 */
export class Appender {
	readonly #log: ThreadLog;
	readonly #onAppended: (newest: Newest) => void;
	readonly #observer: ThreadObserver | undefined;
	/** Those that write no group at the moment. */
	readonly #free: GroupCommitter[];
	#lastId = 0;
	#waiting: Waiting[] = [];
	readonly #writing = new Set<Waiting>();
	/** Conversations of the groups that are being written. */
	readonly #busy = new Set<string>();
	#scheduled = false;
	/** Whether the group that began last takes long. */
	#isSlow = false;

	/** @param onAppended told what each group added */
	constructor(
		connections: Connections,
		log: ThreadLog,
		onAppended: (newest: Newest) => void,
		observer?: ThreadObserver,
	) {
		this.#free = Array.from({ length: MAX_GROUPS }, () => new GroupCommitter(connections));
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
				const committer = this.#free.pop();
				if (committer === undefined) return;
				const group = this.#takeGroup();
				if (group.length === 0) {
					this.#free.push(committer);
					return;
				}
				void this.#write(group, committer);
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
			if (isLate(request, now)) {
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

	async #write(group: readonly Waiting[], committer: GroupCommitter): Promise<void> {
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
			await this.#answer(group, committer);
		} finally {
			clearTimeout(slow);
			for (const waiting of group) {
				this.#busy.delete(conversationOf(waiting.request));
				this.#writing.delete(waiting);
			}
			this.#free.push(committer);
			this.#schedule();
		}
	}

	/** Writes a group and answers its requests. */
	async #answer(group: readonly Waiting[], committer: GroupCommitter): Promise<void> {
		const began = performance.now();
		const answered = (): AnsweredGroup => {
			const startedAt = performance.timeOrigin + began;
			const told = { ids: group.map(({ id }) => id), startedAt, duration: performance.now() - began };
			this.#observer?.grouped(OBSERVED_AS, told);
			return told;
		};
		try {
			const answers = await committer.commit(group.map(({ request }) => request));
			this.#onAppended(newestOf(answers));
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
				await this.#answer(group.slice(0, middle), committer);
				await this.#answer(group.slice(middle), committer);
				return;
			}
			this.#log.error({ err: failure, operation: "append", count: group.length }, "the store failed");
			for (const waiting of group) refuse(waiting, failure, told);
		}
	}
}

function refuse({ ended, reject }: Waiting, error: ServiceError, group?: AnsweredGroup): void {
	ended?.(error, group);
	reject(error);
}

function bytesOf(request: GroupRequest): number {
	if ("update" in request) return request.update.record.bytes.byteLength + request.update.summary.byteLength;
	const { events, live } = request;
	const record = live?.version?.record.bytes.byteLength ?? 0;
	return events.reduce((size, { text }) => size + text.byteLength, record);
}
