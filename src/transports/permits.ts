import { ServiceError } from "../errors.ts";
import { BackOff, type PausableConnection } from "./back-off.ts";

/** Limits of one kind of work. */
export interface WorkLimits {
	/** Maximum number of requests under way. */
	readonly requests: number;
	/** Maximum number of bytes that the bodies and the responses of these requests hold together. */
	readonly bytes: number;
}

/** Ends a request that was evicted to make room for others. The error says why. */
export type OnEvicted = (error: ServiceError) => void;

/** Lowest value of the busy limit. This number of requests keeps every thread busy. */
const MIN_BUSY_LIMIT = 64;
/** Milliseconds after which the work on a request, with its wait in queues, or the arrival of a body counts as slow. */
const SLOW_AFTER = 1_000;
/** Milliseconds after which a request with an incomplete body can be evicted. Equal to the Retry-After of a refusal. */
const ARRIVAL_GRACE = 5_000;
/** Fraction of the requests, and of the bytes, that slow requests leave to others. With less left, some are evicted. */
const KEPT_FROM_SLOW = 1 / 2;
/** Size in bytes from which a request counts as large. */
const LARGE_REQUEST = 2 ** 20;
/** Maximum size in bytes of a response that does not count. */
const MAX_UNCOUNTED_RESPONSE = 4096;
/** Fraction of the bytes that large requests leave to others. */
const KEPT_FROM_LARGE = 1 / 4;
/** Fraction of the bytes that is kept for admitted requests, whose size is not known before they are decompressed. */
const KEPT_FOR_ADMITTED = 1 / 8;
/** Fraction of the requests that must be free before a paused connection is resumed: it may send many at once. */
const FREE_TO_RESUME = 1 / 8;

/**
 * The requests of one kind of work that are under way, and their bytes. `Admission` says until when a request counts.
 *
 * An admitted request is arriving until its work begins, which is when its body is complete. Requests whose work is
 * under way are busy, and so are those that have been arriving for up to {@link SLOW_AFTER}. The number of busy
 * requests has a limit of its own, which adapts to the time that the work takes.
 */
export class Pool {
	requests = 0;
	bytes = 0;
	readonly now: () => number;
	/** Maximum number of busy requests, from {@link MIN_BUSY_LIMIT} to the maximum number of requests under way. */
	#busyLimit: number;
	/** Number of requests whose work is under way. */
	#working = 0;
	/** Requests that have been arriving for up to {@link SLOW_AFTER}, with their times of admission, oldest first. */
	readonly #arriving = new Map<Permit, number>();
	/** Evictable requests that have been arriving for longer, with their times of admission, oldest first. */
	readonly #slow = new Map<Permit, number>();
	readonly #limits: WorkLimits;
	readonly #backOff = new BackOff(() => this.#hasFreeBytes && this.#hasRoom(1 - FREE_TO_RESUME));

	constructor(limits: WorkLimits, now: () => number) {
		this.#limits = limits;
		this.#busyLimit = limits.requests;
		this.now = now;
	}

	/** Admits or refuses a request, as `Admission.enter` says. Without `onEvicted` the request cannot be evicted. */
	enter(connection: PausableConnection | undefined, onEvicted: OnEvicted | undefined): Permit {
		while (this.#isFull) if (!this.#evictSlow()) break;
		const refusal = this.#refusal();
		if (refusal !== undefined) {
			if (connection !== undefined) this.#backOff.pause(connection);
			throw refusal;
		}
		this.requests += 1;
		const permit = new Permit(this, onEvicted);
		this.#arriving.set(permit, this.now());
		return permit;
	}

	/** Returns the error with which a new request has to be refused. Undefined if it can be admitted. */
	#refusal(): ServiceError | undefined {
		if (!this.#hasRoom(1)) return new ServiceError("unavailable", "Too many requests are under way; try again later");
		// Now, before any work is done for a body that would probably be refused in its middle.
		return this.#hasFreeBytes ? undefined : tooManyBytes();
	}

	/** Whether the limits of {@link WorkLimits} leave no room for a new request. The busy limit is not among them. */
	get #isFull(): boolean {
		return this.requests >= this.#limits.requests || !this.#hasFreeBytes;
	}

	/**
	 * Evicts one request that has been arriving for longer than {@link ARRIVAL_GRACE}, if slow requests hold more than
	 * their share of the requests or of the bytes. The newest such request is evicted, so that older ones can finish
	 * however many new requests come.
	 *
	 * @param except a request that is not evicted
	 * @returns whether a request was evicted
	 */
	#evictSlow(except?: Permit): boolean {
		this.#separateSlow();
		const now = this.now();
		let bytes = 0;
		let newest: Permit | undefined;
		for (const [permit, since] of this.#slow) {
			bytes += permit.bytes;
			if (now - since > ARRIVAL_GRACE && permit !== except) newest = permit;
		}
		const share = 1 - KEPT_FROM_SLOW;
		const isOverShare = this.#slow.size > this.#limits.requests * share || bytes > this.#limits.bytes * share;
		if (newest === undefined || !isOverShare) return false;
		newest.evict(new ServiceError("unavailable", "The body takes too long to arrive; try again later"));
		return true;
	}

	/** Whether one request more stays within a fraction of the limits on requests and on busy requests. */
	#hasRoom(fraction: number): boolean {
		return this.requests < this.#limits.requests * fraction && this.#busy < this.#busyLimit * fraction;
	}

	/**
	 * Number of busy requests: those that are worked on, or will be soon. A request whose body arrives slowly, or whose
	 * response the client does not read, is not busy, because it does not make others wait.
	 */
	get #busy(): number {
		this.#separateSlow();
		return this.#working + this.#arriving.size;
	}

	/** Takes the requests that arrive slowly out of `#arriving`. Those that can be evicted go to `#slow`. */
	#separateSlow(): void {
		const now = this.now();
		for (const [permit, since] of this.#arriving) {
			if (now - since <= SLOW_AFTER) break;
			this.#arriving.delete(permit);
			if (permit.isEvictable) this.#slow.set(permit, since);
		}
	}

	/** Whether the bytes leave room for a new request. */
	get #hasFreeBytes(): boolean {
		return this.bytes <= this.#limits.bytes * (1 - KEPT_FOR_ADMITTED);
	}

	/** Counts a request as one whose work is under way. */
	startWork(permit: Permit): void {
		this.#endArrival(permit);
		this.#working += 1;
	}

	/**
	 * Ends the work on a request and adapts the busy limit: slow work lowers it by one, other work raises it by one. So
	 * the limit falls as long as most requests are slow, and a single slow one is no reason to refuse others.
	 *
	 * @param time milliseconds since the work began, with its wait in queues
	 */
	finishWork(time: number): void {
		const { requests } = this.#limits;
		const busyLimit = this.#busyLimit + (time > SLOW_AFTER ? -1 : 1);
		this.#busyLimit = Math.min(Math.max(busyLimit, MIN_BUSY_LIMIT), requests);
		this.#working -= 1;
		this.#backOff.resumeIfRoom();
	}

	/** Counts bytes of a request, as {@link Permit.reserve} says. Evicts slow requests where that makes room for them. */
	reserve(permit: Permit, bytes: number): void {
		const limit = this.#limits.bytes * (permit.bytes + bytes < LARGE_REQUEST ? 1 : 1 - KEPT_FROM_LARGE);
		// A request may pass the limit while no other one holds bytes. Otherwise each of its retries would be refused.
		const isOverLimit = () => this.bytes > permit.bytes && this.bytes + bytes > limit;
		while (isOverLimit()) if (!this.#evictSlow(permit)) throw tooManyBytes();
		this.bytes += bytes;
	}

	/** Ends the counting of a request and of its bytes. */
	leave(permit: Permit): void {
		this.#endArrival(permit);
		this.requests -= 1;
		this.bytes -= permit.bytes;
		this.#backOff.resumeIfRoom();
	}

	#endArrival(permit: Permit): void {
		this.#arriving.delete(permit);
		this.#slow.delete(permit);
	}
}

/** The permit of an admitted request. The request counts until all holders of the permit have released it. */
export class Permit {
	/** Bytes that count for the request. */
	bytes = 0;
	readonly #pool: Pool;
	readonly #onEvicted: OnEvicted | undefined;
	#holders = 0;
	/** Whether the request has stopped counting. */
	#over = false;

	constructor(pool: Pool, onEvicted: OnEvicted | undefined) {
		this.#pool = pool;
		this.#onEvicted = onEvicted;
	}

	/** Whether the request can be evicted while it is arriving. */
	get isEvictable(): boolean {
		return this.#onEvicted !== undefined;
	}

	/** Ends the request. It stops counting at once, even while the permit is held. */
	evict(error: ServiceError): void {
		this.#leave();
		this.#onEvicted?.(error);
	}

	/**
	 * Counts bytes of the request's body until the request is over. Has no effect when it is over already.
	 *
	 * @throws ServiceError `unavailable` when the bytes would pass the limit; they do not count then
	 */
	reserve(bytes: number): void {
		if (this.#over) return;
		this.#pool.reserve(this, bytes);
		this.bytes += bytes;
	}

	/**
	 * Counts the bytes of the response, as {@link reserve} does. A response of up to {@link MAX_UNCOUNTED_RESPONSE} bytes
	 * does not count: the number of requests limits such responses, and a post that was stored must not be refused.
	 *
	 * @throws ServiceError `unavailable` when the response would pass the limit
	 */
	reserveResponse(bytes: number): void {
		if (bytes > MAX_UNCOUNTED_RESPONSE) this.reserve(bytes);
	}

	/**
	 * Begins the work on the request, whose body has arrived, and holds the permit as {@link hold} does. To be called
	 * once.
	 *
	 * @returns a function that ends the work and releases the permit; to be called once
	 */
	startWork(): () => void {
		const release = this.hold();
		const pool = this.#pool;
		const start = pool.now();
		pool.startWork(this);
		return () => {
			pool.finishWork(pool.now() - start);
			release();
		};
	}

	/**
	 * Holds the permit, so that the request counts.
	 *
	 * @returns a function that releases the permit; further calls of it have no effect
	 */
	hold(): () => void {
		this.#holders += 1;
		let holds = true;
		return () => {
			if (!holds) return;
			holds = false;
			this.#holders -= 1;
			if (this.#holders === 0) this.#leave();
		};
	}

	#leave(): void {
		if (this.#over) return;
		this.#over = true;
		this.#pool.leave(this);
	}
}

function tooManyBytes(): ServiceError {
	return new ServiceError("unavailable", "Requests and responses under way use too much memory; try again later");
}
