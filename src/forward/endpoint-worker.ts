import { setTimeout as delay } from "node:timers/promises";
import { fromBinary } from "@bufbuild/protobuf";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { conditionsOf } from "../conversations/read/filter.ts";
import { ServiceError } from "../errors.ts";
import { summaryMeets } from "../store/condition.ts";
import type { StoredUpdate } from "../store/entries.ts";
import type { DeliveryRow, EndpointHealth, EndpointRow, NewDelivery, Try } from "../store/forwarding.ts";
import type { Store } from "../store/store.ts";
import type { Answer } from "./http-sink.ts";
import type { EndpointSecrets } from "./secrets.ts";
import type { Sinks } from "./sinks.ts";
import { changeOf, FORMS, summaryOf, type Told } from "./tell.ts";

/** The time, which tests can replace. Milliseconds since the Unix epoch. */
export interface Clock {
	now(): number;
	wait(milliseconds: number, signal: AbortSignal): Promise<void>;
}

export const CLOCK: Clock = {
	now: () => Date.now(),
	wait: (milliseconds, signal) =>
		delay(Math.min(milliseconds, 2 ** 31 - 1), undefined, { signal }).catch(() => undefined),
};

/** A form of deliveries that no caller can choose, for what the service itself sends: see `WorkerOptions.ownForms`. */
export interface OwnForm {
	/** Milliseconds for which an update waits before it is sent. */
	readonly delay: number;
	/** Whether an update whose change the endpoint wants is to be told. */
	wants(update: StoredUpdate): boolean;
	/** Sends a delivery. Returns undefined when what it tells is not stored any more. */
	deliver(delivery: DeliveryRow, signal: AbortSignal): Promise<Answer | undefined>;
}

export interface WorkerOptions {
	readonly store: Pick<Store, "updates" | "tables">;
	readonly sink: Pick<Sinks, "send">;
	readonly secrets: EndpointSecrets;
	readonly clock: Clock;
	readonly random: () => number;
	/** Returns what a delivery tells: see `tell.ts`. */
	readonly tell: (endpoint: EndpointRow, delivery: DeliveryRow) => Promise<Told | undefined>;
	/** Returns the address of a conversation in the console, if that is known. */
	readonly linkOf: (conversationId: string) => string | undefined;
	/** The forms beside FORMS, by their names. */
	readonly ownForms?: ReadonlyMap<string, OwnForm> | undefined;
	readonly onDisabled: (endpoint: EndpointRow, reason: string) => void;
	readonly onError: (error: unknown) => void;
}

/** Counters of an endpoint since the start of the process. */
export interface EndpointCounts {
	delivered: number;
	failedTries: number;
	failed: number;
}

const MAX_UNDER_WAY = 8;
/** Maximum number of waiting deliveries. The log is not followed further while there are as many. */
const MAX_WAITING = 10_000;
const PAGE = 256;
/** Milliseconds after which the position is saved although nothing is to be told. */
const SAVE_POSITION = 1_000;
/** Milliseconds after which work that failed in the store is done again. */
const STORE_RETRY = 1_000;
const MAX_TRIES = 20;
/** Milliseconds for which finished deliveries are kept, and between two looks for older ones. */
const KEPT_FOR = 30 * 24 * 3_600_000;
const TRIM_INTERVAL = 60_000;

/**
 * Delivers to one endpoint: follows the log from its position, puts what the endpoint wants into its queue, and sends it.
 * The queue is in the store; this is its only writer, until another one begins. What waits is in memory, too: no index of the
 * store finds the first delivery of each conversation.
 *
 * The deliveries of a conversation are sent one after the other, in the order of the queue. The next one waits until the
 * result of the one before is stored.
 */
export class EndpointWorker {
	readonly #endpoint: EndpointRow;
	readonly #options: WorkerOptions;
	readonly #counts: EndpointCounts;
	readonly #ownForm: OwnForm | undefined;
	readonly #stop = new AbortController();
	readonly #giveUp = new AbortController();
	/** Tries whose results are not stored yet, by their conversation. */
	readonly #tries = new Map<string, Promise<void>>();
	/** Number of tries without an answer. */
	#underWay = 0;
	/** Deliveries that wait, by their conversation, in the order of the queue. What concerns none has a queue of its own. */
	readonly #queues = new Map<string, DeliveryRow[]>();
	#waiting = 0;
	/** Number of the newest delivery that was loaded. */
	#loaded = 0n;
	#mustLoad = true;
	#position: bigint;
	#savedPosition: bigint;
	#savedAt: number;
	#trimmedAt = 0;
	#newest: bigint;
	#health: EndpointHealth;
	/** No delivery is tried before. */
	#pausedUntil = 0;
	#results: DeliveryRow[] = [];
	#storing: Promise<void> | undefined;
	#wake = new AbortController();
	readonly done: Promise<void>;

	/** @param newest the newest sequence of the log; `wake` says newer ones */
	constructor(endpoint: EndpointRow, newest: bigint, counts: EndpointCounts, options: WorkerOptions) {
		this.#endpoint = endpoint;
		this.#options = options;
		this.#counts = counts;
		this.#ownForm = options.ownForms?.get(endpoint.form);
		this.#newest = newest;
		this.#position = endpoint.position;
		this.#savedPosition = endpoint.position;
		this.#savedAt = options.clock.now();
		const { failures, failingSince, lastSuccessAt } = endpoint;
		this.#health = { failures, failingSince, lastSuccessAt, disabledBecause: undefined };
		this.done = this.#run();
	}

	get generation(): bigint {
		return this.#endpoint.generation;
	}

	/** Sequence of the update through which it has followed the log. */
	get position(): bigint {
		return this.#position;
	}

	/** Number of deliveries that wait, as far as they were loaded. */
	get waiting(): number {
		return this.#waiting;
	}

	get isOver(): boolean {
		return this.#stop.signal.aborted;
	}

	/** Says that there may be something to do: a newer update, or any change. */
	wake(newest?: bigint): void {
		if (newest === undefined) this.#mustLoad = true;
		else this.#newest = newest;
		// Each further call would make an error.
		if (!this.#wake.signal.aborted) this.#wake.abort();
	}

	/** Ends the work, after some milliseconds for deliveries under way. Results that are there already are stored. */
	async stop(grace: number): Promise<void> {
		this.#stop.abort();
		const timer = setTimeout(() => this.#giveUp.abort(), grace);
		await this.done;
		clearTimeout(timer);
	}

	async #run(): Promise<void> {
		const { clock, onError } = this.#options;
		const { signal } = this.#stop;
		while (!signal.aborted) {
			this.#wake = new AbortController();
			let wait = STORE_RETRY;
			try {
				await this.#follow();
				await this.#load();
				wait = Math.min(this.#startDue(), await this.#keepHouse());
			} catch (error) {
				onError(error);
			}
			if (wait > 0 && !signal.aborted) await clock.wait(wait, AbortSignal.any([this.#wake.signal, signal]));
		}
		await Promise.all(this.#tries.values());
		await this.#storing;
		if (this.#position > this.#savedPosition) await this.#advance(this.#position, []).catch(onError);
	}

	/** Reads the log, and puts what the endpoint wants into the queue. */
	async #follow(): Promise<void> {
		// The database has lost the end of the log.
		if (this.#newest < this.#position) this.#position = this.#newest;
		while (this.#position < this.#newest && this.#waiting < MAX_WAITING && !this.isOver) {
			const [endpoint, { store }] = [this.#endpoint, this.#options];
			const { position, wanted } = await readWanted(store, endpoint, this.#position, this.#newest, this.#ownForm);
			if (wanted.length > 0) await this.#advance(position, wanted);
			this.#position = position;
		}
	}

	async #advance(position: bigint, deliveries: readonly NewDelivery[]): Promise<void> {
		const { store, clock } = this.#options;
		const { id, generation } = this.#endpoint;
		const now = clock.now();
		const at = microseconds(now);
		const nextAt = at + microseconds(this.#ownForm?.delay ?? 0);
		const isMine = await store.tables.write.advanceEndpoint({ id, generation, position, deliveries, at, nextAt });
		if (!isMine) this.#stop.abort();
		this.#savedPosition = position;
		this.#savedAt = now;
		if (deliveries.length > 0) this.#mustLoad = true;
	}

	/** Takes what came into the queue in the store. */
	async #load(): Promise<void> {
		while (this.#mustLoad && !this.isOver) {
			this.#mustLoad = false;
			const query = { id: this.#endpoint.id, state: "waiting", after: this.#loaded, limit: PAGE } as const;
			const rows = await this.#options.store.tables.read.listDeliveries(query);
			for (const row of rows) {
				this.#queues.getOrInsertComputed(row.conversationId, () => []).push(row);
				this.#waiting += 1;
				this.#loaded = row.number;
			}
			if (rows.length === PAGE) this.#mustLoad = true;
		}
	}

	/** Starts the deliveries that are due. Returns the milliseconds until the next one is. */
	#startDue(): number {
		const now = this.#options.clock.now();
		for (;;) {
			const most = isCircuitOpen(this.#health) ? 1 : MAX_UNDER_WAY;
			if (this.#underWay >= most || this.isOver) return Number.POSITIVE_INFINITY;
			let next: DeliveryRow | undefined;
			for (const [key, [head]] of this.#queues)
				if (head !== undefined && !this.#tries.has(key) && (next === undefined || isBefore(head, next))) next = head;
			if (next === undefined) return Number.POSITIVE_INFINITY;
			const due = Math.max(Number(dueAt(next) / 1000n), this.#pausedUntil);
			if (due > now) return due - now;
			this.#tries.set(next.conversationId, this.#try(next));
		}
	}

	/** Saves the position now and then, and removes old deliveries. Returns the milliseconds until it is to be done again. */
	async #keepHouse(): Promise<number> {
		const { clock, store } = this.#options;
		const now = clock.now();
		if (now - this.#trimmedAt >= TRIM_INTERVAL) {
			this.#trimmedAt = now;
			const finishedBefore = microseconds(now - KEPT_FOR);
			await store.tables.write.trimDeliveries({ id: this.#endpoint.id, finishedBefore });
		}
		if (this.#position === this.#savedPosition) return Number.POSITIVE_INFINITY;
		const left = this.#savedAt + SAVE_POSITION - now;
		if (left > 0) return left;
		await this.#advance(this.#position, []);
		return Number.POSITIVE_INFINITY;
	}

	async #try(delivery: DeliveryRow): Promise<void> {
		const { clock, onError } = this.#options;
		const at = clock.now();
		const isProbe = isCircuitOpen(this.#health);
		this.#underWay += 1;
		try {
			const answer = await this.#deliver(delivery).catch((error: unknown) => this.#failureOf(error));
			if (answer === undefined) this.#results.push({ ...delivery, ...endOf("lost", clock.now()) });
			else if (!this.#giveUp.signal.aborted) this.#results.push(this.#judge(delivery, answer, at, isProbe));
			if (this.#results.length > 0) this.#storing ??= this.#store();
		} catch (error) {
			onError(error);
			await clock.wait(STORE_RETRY, this.#stop.signal);
			this.#tries.delete(delivery.conversationId);
		}
		this.#underWay -= 1;
		this.#wake.abort();
	}

	/**
	 * Returns the answer for what was thrown while a delivery was made or sent: it counts as a failed try.
	 *
	 * @throws the error when the store is away, because the try cannot be counted then
	 */
	#failureOf(error: unknown): Answer {
		if (error instanceof ServiceError && error.kind === "unavailable") throw error;
		this.#options.onError(error);
		const reason = `the delivery cannot be made: ${error instanceof Error ? error.message : String(error)}`;
		return { status: 0, error: reason, answer: "", retryAfter: undefined };
	}

	/** Returns undefined when what a delivery tells is not stored any more. */
	async #deliver(delivery: DeliveryRow): Promise<Answer | undefined> {
		if (this.#ownForm !== undefined) return await this.#ownForm.deliver(delivery, this.#giveUp.signal);
		const told = await this.#options.tell(this.#endpoint, delivery);
		return told && (await sendTold(this.#options, this.#endpoint, told, this.#giveUp.signal));
	}

	/** Returns the result of a try, and notes what it says about the endpoint. */
	#judge(delivery: DeliveryRow, answer: Answer, at: number, isProbe: boolean): DeliveryRow {
		const { clock, random } = this.#options;
		const now = clock.now();
		const { status, error } = answer;
		const one: Try = { at, duration: now - at, status, error, answer: answer.answer };
		const tries = [...delivery.tries, one].slice(-MAX_TRIES);
		this.#health = healthAfter(this.#health, answer, now);
		this.#pausedUntil = Math.max(this.#pausedUntil, now + pauseAfter(answer));
		if (error === "") {
			// What failed while the endpoint was away is tried at once.
			if (isProbe)
				for (const queue of this.#queues.values()) {
					const [head] = queue;
					const last = head?.tries.at(-1);
					if (head !== undefined && last !== undefined && concernsAll(last))
						queue[0] = { ...head, nextAt: microseconds(now) };
				}
			return { ...delivery, tries, ...endOf("delivered", now) };
		}
		this.#counts.failedTries += 1;
		if (isCircuitOpen(this.#health)) this.#pausedUntil = Math.max(this.#pausedUntil, now + PROBE_WAIT);
		const attempts = delivery.attempts + 1;
		const wait = waitAfter(attempts, answer, random());
		if (wait === undefined) return { ...delivery, attempts, tries, ...endOf("failed", now) };
		return { ...delivery, attempts, tries, nextAt: microseconds(now + wait), finishedAt: undefined };
	}

	/** Stores the results that are there, until there are none. Never rejects. */
	async #store(): Promise<void> {
		const { store, clock, onDisabled, onError } = this.#options;
		const { id, generation } = this.#endpoint;
		while (this.#results.length > 0) {
			const [tried, health] = [this.#results, this.#health];
			this.#results = [];
			const results = tried.map(({ data: _, ...result }) => result);
			try {
				const isMine = await store.tables.write.recordTries({ id, generation, results, health });
				if (!isMine) this.#stop.abort();
				else for (const one of tried) this.#note(one);
				for (const { conversationId } of tried) this.#tries.delete(conversationId);
				this.#wake.abort();
				if (!isMine || health.disabledBecause === undefined) continue;
				this.#stop.abort();
				onDisabled(this.#endpoint, health.disabledBecause);
			} catch (error) {
				onError(error);
				// A stopping service gives up: the deliveries are sent again, with the same ids.
				if (this.isOver) break;
				this.#results = [...tried, ...this.#results];
				await clock.wait(STORE_RETRY, this.#stop.signal);
			}
		}
		this.#storing = undefined;
	}

	#note(tried: DeliveryRow): void {
		const { conversationId, state } = tried;
		const queue = this.#queues.get(conversationId) ?? [];
		if (state === "waiting") queue[0] = tried;
		else {
			queue.shift();
			this.#waiting -= 1;
			if (queue.length === 0) this.#queues.delete(conversationId);
		}
		if (state === "delivered" || state === "failed") this.#counts[state] += 1;
	}
}

/** Signs what a delivery tells, and sends it in the form of its endpoint. */
export function sendTold(
	{ sink, secrets, clock, linkOf }: Pick<WorkerOptions, "sink" | "secrets" | "clock" | "linkOf">,
	endpoint: EndpointRow,
	told: Told,
	signal: AbortSignal,
): Promise<Answer> {
	const { id, form, secrets: stored } = endpoint;
	const message = (FORMS[form] ?? FORMS.plain)?.(told, linkOf(told.conversationId));
	if (message === undefined) throw new TypeError(`there is no form ${form}`);
	const headers = secrets.sign(id, stored, told.id, message.body, clock.now());
	return sink.send(endpoint, { ...message, conversationId: told.conversationId }, headers, signal);
}

/**
 * Reads a page of the log.
 *
 * @param through a sequence that is in the log, or before its newest
 * @returns what an endpoint wants of the page, and the sequence through which the log was read. Both can be beyond `through`.
 */
export async function readWanted(
	{ updates }: Pick<Store, "updates">,
	{ id, owner, changes, filter }: EndpointRow,
	after: bigint,
	through: bigint,
	ownForm?: OwnForm,
): Promise<{ readonly position: bigint; readonly wanted: readonly NewDelivery[] }> {
	const page = await updates.list({ after, limit: PAGE, withRecords: false, ...(owner === "" ? {} : { owner }) });
	const last = page.at(-1)?.sequence ?? through;
	const conditions = conditionsOf(filterOf({ filter }));
	const wanted = page.filter((update) => {
		if (!changes.includes(changeOf(update.change)) || ownForm?.wants(update) === false) return false;
		const summary = summaryOf(update);
		// An erasure, or what cannot be read, may meet the conditions.
		return summary === undefined || summaryMeets(conditions, summary);
	});
	return {
		position: page.length < PAGE && last < through ? through : last,
		wanted: wanted.map(({ sequence, conversationId, change }) => {
			return { id: `${id}_${sequence}`, change: changeOf(change), conversationId, sequence, data: undefined };
		}),
	};
}

export function filterOf({ filter }: Pick<EndpointRow, "filter">): ConversationFilter {
	return fromBinary(ConversationFilterSchema, filter);
}

function endOf(state: DeliveryRow["state"], now: number): Pick<DeliveryRow, "state" | "nextAt" | "finishedAt"> {
	return { state, nextAt: undefined, finishedAt: microseconds(now) };
}

function dueAt({ nextAt = 0n }: DeliveryRow): bigint {
	return nextAt;
}

function isBefore(a: DeliveryRow, b: DeliveryRow): boolean {
	return dueAt(a) < dueAt(b) || (dueAt(a) === dueAt(b) && a.number < b.number);
}

export function microseconds(milliseconds: number): bigint {
	return BigInt(Math.round(milliseconds)) * 1000n;
}

/** When a delivery is tried again, and what its tries say about the endpoint. Times are milliseconds. */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** Time without a success after which an endpoint is disabled, and during which a delivery is tried at the last pace. */
const MAX_FAILING = 72 * HOUR;
/** Waits before the tries of a delivery after the first one, without their jitter. */
const WAITS: readonly number[] = [
	...[5 * SECOND, 30 * SECOND, 2 * MINUTE, 10 * MINUTE, HOUR],
	...Array.from({ length: MAX_FAILING / (6 * HOUR) }, () => 6 * HOUR),
];
/** A wait is longer by up to this part of it, so that what failed together is not tried together. */
const JITTER = 0.1;
/** Longest time for which a receiver can put off the next try. */
const MAX_RETRY_AFTER = 24 * HOUR;
/** Number of failures in a row after which an endpoint is tried with one delivery at a time. */
const CIRCUIT = 5;
/** Least time between two tries then. */
const PROBE_WAIT = 5 * SECOND;

/**
 * Returns the wait before the next try of a delivery; undefined after the last one.
 *
 * @param attempts number of failed tries, at least 1
 * @param random from 0 to before 1
 */
function waitAfter(attempts: number, { retryAfter = 0 }: Pick<Answer, "retryAfter">, random: number) {
	const wait = WAITS[attempts - 1];
	return wait === undefined ? undefined : Math.max(wait * (1 + JITTER * random), Math.min(retryAfter, MAX_RETRY_AFTER));
}

/** Returns the wait before the next try of any delivery, when the receiver asks for one. */
function pauseAfter({ status, retryAfter = 0 }: Answer): number {
	return status === 429 || status === 503 ? Math.min(retryAfter, MAX_RETRY_AFTER) : 0;
}

function isCircuitOpen({ failures }: Pick<EndpointHealth, "failures">): boolean {
	return failures >= CIRCUIT;
}

/** Whether a failure is one of the endpoint. A refusal by another status may concern the delivery only. */
function concernsAll({ status }: Pick<Try, "status">): boolean {
	return status === 0 || status >= 500;
}

function healthAfter(before: EndpointHealth, { status, error }: Answer, now: number): EndpointHealth {
	const at = BigInt(now) * 1000n;
	if (error === "")
		return { failures: 0, failingSince: undefined, lastSuccessAt: at, disabledBecause: before.disabledBecause };
	const failingSince = before.failingSince ?? at;
	const failures = before.failures + (concernsAll({ status }) ? 1 : 0);
	const disabledBecause =
		status === 410
			? "it answered with 410"
			: at - failingSince >= BigInt(MAX_FAILING) * 1000n
				? "no delivery succeeded for 3 days"
				: before.disabledBecause;
	return { ...before, failures, failingSince, disabledBecause };
}
