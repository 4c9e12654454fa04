import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { fromBinary } from "@bufbuild/protobuf";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { UpdateChange } from "../../gen/conversations/v1/update_pb.js";
import { conditionsOf } from "../conversations/read/filter.ts";
import { ServiceError } from "../errors.ts";
import { summaryMeets } from "../store/condition.ts";
import type { StoredUpdate } from "../store/entries.ts";
import type {
	DeliveryResult,
	DeliveryRow,
	EndpointHealth,
	EndpointRow,
	ListedEndpoint,
	NewDelivery,
	Try,
} from "../store/forwarding.ts";
import { claimFor } from "../store/session.ts";
import type { Store } from "../store/store.ts";
import { type Answer, failure } from "./http-sink.ts";
import type { EndpointSecrets } from "./secrets.ts";
import type { Sinks } from "./sinks.ts";
import { FORMS, summaryOf, type Told } from "./tell.ts";

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
	readonly store: Pick<Store, "updates" | "tables" | "claim">;
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

const MAX_UNDER_WAY = 8;
/** Number of waiting deliveries with which the log is not followed further. */
const MAX_WAITING = 10_000;
const PAGE = 256;
/** Milliseconds between two looks at what others may have changed. */
export const LOOK = 10_000;
/** Milliseconds for which a process has an endpoint without renewing its claim. */
const CLAIM = 30_000;
/** Milliseconds for deliveries under way when the service stops. */
const GRACE = 2_000;
/** Milliseconds after which work that failed in the store is done again. */
const STORE_RETRY = 1_000;
const MAX_TRIES = 20;
/** Milliseconds for which finished deliveries are kept, and between two looks for older ones. */
const KEPT_FOR = 30 * 24 * 3_600_000;
const TRIM_INTERVAL = 60_000;

/** A delivery that was tried. Times are milliseconds since the Unix epoch. */
interface Tried {
	readonly delivery: DeliveryRow;
	readonly at: number;
	readonly end: number;
	/** Undefined when what it tells is not stored any more. */
	readonly answer: Answer | undefined;
}

/**
 * Delivers to one endpoint: follows the log from its position, puts what the endpoint wants into its queue, and sends it.
 * The queue and the state of the endpoint are in the store. Of several processes, the one that has the claim delivers.
 *
 * The deliveries of a conversation are sent one after the other, in the order of the queue. The next one waits until the
 * result of the one before is stored.
 */
export class EndpointWorker implements AsyncDisposable {
	/** What was delivered since the start. */
	readonly counts = { delivered: 0, failedTries: 0, failed: 0 };
	readonly #options: WorkerOptions;
	readonly #newest: () => bigint;
	readonly #claim: (milliseconds: number) => Promise<boolean>;
	readonly #stop = new AbortController();
	readonly #giveUp = new AbortController();
	/** The work on deliveries whose results are not stored yet, by their conversation. What concerns none has an empty one. */
	readonly #tries = new Map<string, Promise<void>>();
	/** Number of tries without an answer. */
	#underWay = 0;
	readonly #tried: Tried[] = [];
	/** As it is in the store. */
	#endpoint: ListedEndpoint | undefined;
	#isMine = false;
	/** When the claim is renewed, and when the endpoint is read again. */
	#claimAt = 0;
	#readAt = 0;
	#trimAt = 0;
	/** Sequence of the update through which the log was followed. It is saved with what is to be told, and with the claim. */
	#position = 0n;
	/** No delivery is tried before. */
	#pausedUntil = 0;
	#wake = new AbortController();
	/** Resolves when the endpoint is deleted, or the service stops. */
	readonly done: Promise<void>;

	/** @param newest returns the newest sequence of the log; `wake` says that it has changed */
	constructor(id: string, newest: () => bigint, options: WorkerOptions) {
		this.#options = options;
		this.#newest = newest;
		const holder = randomUUID();
		this.#claim = (milliseconds) => claimFor(options.store, `forward ${id}`, holder, milliseconds);
		this.done = this.#run(id);
	}

	/** Sequence of the update through which it has followed the log; undefined when another process does. */
	get position(): bigint | undefined {
		return this.#isMine ? this.#position : undefined;
	}

	/** Says that there may be something to do: a newer update, or with `isChanged` a change of the endpoint or its queue. */
	wake(isChanged: boolean): void {
		if (isChanged) this.#readAt = 0;
		// Each further call would make an error.
		if (!this.#wake.signal.aborted) this.#wake.abort();
	}

	/** Ends the work, after {@link GRACE} for deliveries under way. Results that are there already are stored. */
	async [Symbol.asyncDispose](): Promise<void> {
		this.#stop.abort();
		const timer = setTimeout(() => this.#giveUp.abort(), GRACE);
		await this.done;
		clearTimeout(timer);
	}

	async #run(id: string): Promise<void> {
		const { clock, onError } = this.#options;
		const { signal } = this.#stop;
		while (!signal.aborted) {
			this.#wake = new AbortController();
			let next: number;
			try {
				next = await this.#turn(id);
			} catch (error) {
				onError(error);
				this.#readAt = 0;
				next = clock.now() + STORE_RETRY;
			}
			const wait = next - clock.now();
			if (wait > 0 && !signal.aborted) await clock.wait(wait, AbortSignal.any([this.#wake.signal, signal]));
		}
		await Promise.all(this.#tries.values());
		try {
			await this.#store();
			await this.#savePosition();
			// So another process need not wait.
			await this.#claim(0);
		} catch (error) {
			onError(error);
		}
	}

	/** Does what there is to do. Returns when there may be more. */
	async #turn(id: string): Promise<number> {
		const { clock } = this.#options;
		await this.#store();
		if (clock.now() >= this.#claimAt) await this.#renewClaim(id);
		if (this.#isMine && clock.now() >= this.#readAt) await this.#read(id);
		const endpoint = this.#endpoint;
		if (!this.#isMine || endpoint?.state !== "active") return this.#claimAt;
		const due = await this.#startDue(endpoint);
		return (await this.#follow(endpoint)) ? 0 : Math.min(this.#claimAt, due);
	}

	async #renewClaim(id: string): Promise<void> {
		const { store, clock } = this.#options;
		const now = clock.now();
		this.#isMine = await this.#claim(CLAIM);
		this.#claimAt = now + LOOK;
		this.#readAt = 0;
		if (!this.#isMine) return;
		await this.#savePosition();
		if (now < this.#trimAt) return;
		this.#trimAt = now + TRIM_INTERVAL;
		await store.tables.write.trimDeliveries({ id, finishedBefore: microseconds(now - KEPT_FOR) });
	}

	async #savePosition(): Promise<void> {
		const endpoint = this.#endpoint;
		if (endpoint !== undefined && this.#position !== endpoint.position)
			await this.#advance(endpoint, this.#position, []);
	}

	async #read(id: string): Promise<void> {
		this.#readAt = Number.POSITIVE_INFINITY;
		const [endpoint] = await this.#options.store.tables.read.listEndpoints({ owner: undefined, id });
		// Somebody else has moved it, or this process has not followed the log yet.
		if (endpoint !== undefined && endpoint.position !== this.#endpoint?.position) this.#position = endpoint.position;
		if (endpoint?.state !== "active") this.#pausedUntil = 0;
		if (endpoint === undefined) this.#stop.abort();
		this.#endpoint = endpoint;
	}

	/** Reads a page of the log, and puts what the endpoint wants into the queue. Returns whether there may be more. */
	async #follow(endpoint: ListedEndpoint): Promise<boolean> {
		const { store, ownForms } = this.#options;
		const newest = this.#newest();
		// The database has lost the end of the log.
		if (newest < this.#position) this.#position = newest;
		if (this.#position === newest || endpoint.waiting >= MAX_WAITING) return false;
		const ownForm = ownForms?.get(endpoint.form);
		const { position, wanted } = await readWanted(store, endpoint, this.#position, newest, ownForm);
		if (wanted.length > 0) await this.#advance(endpoint, position, wanted);
		else this.#position = position;
		return true;
	}

	async #advance(endpoint: ListedEndpoint, position: bigint, deliveries: readonly NewDelivery[]): Promise<void> {
		const { store, clock, ownForms } = this.#options;
		const { id, form, position: from } = endpoint;
		const at = microseconds(clock.now());
		const nextAt = at + microseconds(ownForms?.get(form)?.delay ?? 0);
		const isDone = await store.tables.write.advanceEndpoint({ id, from, position, deliveries, at, nextAt });
		if (!isDone || deliveries.length > 0) this.#readAt = 0;
		if (!isDone) return;
		this.#endpoint = { ...endpoint, position };
		this.#position = position;
	}

	/** Starts the deliveries that are due. Returns when the next one is. */
	async #startDue(endpoint: ListedEndpoint): Promise<number> {
		const { store, clock } = this.#options;
		const most = isCircuitOpen(endpoint) ? 1 : MAX_UNDER_WAY;
		if (endpoint.waiting === 0 || this.#underWay >= most) return Number.POSITIVE_INFINITY;
		const query = { id: endpoint.id, limit: MAX_UNDER_WAY + this.#tries.size };
		for (const next of await store.tables.read.listNextDeliveries(query)) {
			if (this.#tries.has(next.conversationId)) continue;
			if (this.#underWay >= most || this.#stop.signal.aborted) break;
			const due = Math.max(Number((next.nextAt ?? 0n) / 1000n), this.#pausedUntil);
			if (due > clock.now()) return due;
			this.#tries.set(next.conversationId, this.#try(endpoint, next));
		}
		return Number.POSITIVE_INFINITY;
	}

	async #try(endpoint: EndpointRow, delivery: DeliveryRow): Promise<void> {
		const { clock, onError } = this.#options;
		const at = clock.now();
		this.#underWay += 1;
		try {
			const answer = await this.#deliver(endpoint, delivery).catch((error: unknown) => this.#failureOf(error));
			if (!this.#giveUp.signal.aborted) this.#tried.push({ delivery, at, end: clock.now(), answer });
		} catch (error) {
			onError(error);
			await clock.wait(STORE_RETRY, this.#stop.signal);
			this.#tries.delete(delivery.conversationId);
		}
		this.#underWay -= 1;
		this.wake(false);
	}

	/**
	 * Returns the answer for what was thrown while a delivery was made or sent: it counts as a failed try.
	 *
	 * @throws the error when the store is away, because the try cannot be counted then
	 */
	#failureOf(error: unknown): Answer {
		if (error instanceof ServiceError && error.kind === "unavailable") throw error;
		this.#options.onError(error);
		return failure(`the delivery cannot be made: ${error instanceof Error ? error.message : String(error)}`);
	}

	/** Returns undefined when what a delivery tells is not stored any more. */
	async #deliver(endpoint: EndpointRow, delivery: DeliveryRow): Promise<Answer | undefined> {
		const { ownForms, tell } = this.#options;
		const ownForm = ownForms?.get(endpoint.form);
		if (ownForm !== undefined) return await ownForm.deliver(delivery, this.#giveUp.signal);
		const told = await tell(endpoint, delivery);
		return told && (await sendTold(this.#options, endpoint, told, this.#giveUp.signal));
	}

	/** Stores the results that are there, and what they say about the endpoint. */
	async #store(): Promise<void> {
		const { store, clock, onDisabled } = this.#options;
		const [endpoint, tried] = [this.#endpoint, [...this.#tried]];
		if (endpoint === undefined || tried.length === 0) return;
		const { id, failures, failingSince, lastSuccessAt } = endpoint;
		let health: EndpointHealth = { failures, failingSince, lastSuccessAt, disabledBecause: undefined };
		const results = tried.map((one) => {
			if (one.answer !== undefined) health = healthAfter(health, one.answer, one.end);
			return resultOf(one, this.#options.random());
		});
		// What was under way when it was disabled does not disable it again.
		if (endpoint.state !== "active") health = { ...health, disabledBecause: undefined };
		// What failed while the endpoint was away is tried at once.
		const isBack = isCircuitOpen(endpoint) && !isCircuitOpen(health);
		const retryAt = isBack ? microseconds(clock.now()) : undefined;
		await store.tables.write.recordTries({ id, results, health, retryAt });
		this.#tried.splice(0, tried.length);
		this.#readAt = 0;
		for (const { answer, end } of tried) {
			if (answer === undefined || answer.error === "") continue;
			this.counts.failedTries += 1;
			const pause = Math.max(pauseAfter(answer), isCircuitOpen(health) ? PROBE_WAIT : 0);
			this.#pausedUntil = Math.max(this.#pausedUntil, end + pause);
		}
		for (const { conversationId, state } of results) {
			this.#tries.delete(conversationId);
			if (state === "delivered" || state === "failed") this.counts[state] += 1;
		}
		if (health.disabledBecause !== undefined) onDisabled(endpoint, health.disabledBecause);
	}
}

/** Returns the result of a try. `random` is from 0 to before 1. */
function resultOf({ delivery, at, end, answer }: Tried, random: number): DeliveryResult {
	const { id, conversationId, attempts, tries: before } = delivery;
	const over = { id, conversationId, nextAt: undefined, finishedAt: microseconds(end) };
	if (answer === undefined) return { ...over, state: "lost", attempts, tries: before };
	const { status, error } = answer;
	const one: Try = { at, duration: end - at, status, error, answer: answer.answer };
	const tries = [...before, one].slice(-MAX_TRIES);
	if (error === "") return { ...over, state: "delivered", attempts, tries };
	const failed = { attempts: attempts + 1, tries };
	const wait = waitAfter(failed.attempts, answer, random);
	if (wait === undefined) return { ...over, ...failed, state: "failed" };
	return { id, conversationId, ...failed, state: "waiting", nextAt: microseconds(end + wait), finishedAt: undefined };
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
		if (!changes.includes(UpdateChange[update.change]) || ownForm?.wants(update) === false) return false;
		const summary = summaryOf(update);
		// An erasure, or what cannot be read, may meet the conditions.
		return summary === undefined || summaryMeets(conditions, summary);
	});
	return {
		position: page.length < PAGE && last < through ? through : last,
		wanted: wanted.map(({ sequence, conversationId, change }) => {
			return { id: `${id}_${sequence}`, change: UpdateChange[change], conversationId, sequence, data: undefined };
		}),
	};
}

export function filterOf({ filter }: Pick<EndpointRow, "filter">): ConversationFilter {
	return fromBinary(ConversationFilterSchema, filter);
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

function healthAfter(before: EndpointHealth, { status, error }: Answer, now: number): EndpointHealth {
	const at = BigInt(now) * 1000n;
	if (error === "")
		return { failures: 0, failingSince: undefined, lastSuccessAt: at, disabledBecause: before.disabledBecause };
	const failingSince = before.failingSince ?? at;
	// A refusal by another status may concern the delivery only.
	const failures = before.failures + (status === 0 || status >= 500 ? 1 : 0);
	const disabledBecause =
		status === 410
			? "it answered with 410"
			: at - failingSince >= BigInt(MAX_FAILING) * 1000n
				? "no delivery succeeded for 3 days"
				: before.disabledBecause;
	return { ...before, failures, failingSince, disabledBecause };
}
