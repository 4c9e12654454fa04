import { ServiceError } from "../errors.ts";
import { BackOff, type Reading } from "./back-off.ts";

/** Bounds of one kind of work. */
export interface WorkBounds {
	/** Most requests under way at a time. */
	readonly requests: number;
	/** Most bytes at a time, of the bodies and the answers of these requests. */
	readonly bytes: number;
}

/** Ends a request, which is refused with this error. */
export type GiveUp = (error: ServiceError) => void;

/** Requests that are taken however long others have waited; they keep every thread busy. */
const FEW = 64;
/** How long the work on a request may take, with its wait, before fewer are taken, in milliseconds. */
const LONGEST_WAIT = 1_000;
/** How long a body may take to arrive however much there is to do, in milliseconds: as long as a refusal asks to wait. */
const LONGEST_ARRIVAL = 5_000;
/** Part of the requests, and of the bytes, that requests whose bodies take over LONGEST_WAIT leave to others. */
const LEFT_BY_SLOW = 1 / 2;
/** Size from which a request counts as a large one, in bytes. */
const LARGE_FROM = 2 ** 20;
/** Most bytes of an answer that does not count. */
const SMALL_ANSWER = 4096;
/** Part of the bytes that large requests leave to others. */
const LEFT_BY_LARGE = 1 / 4;
/** Part of the bytes that is left to requests that have begun: what a packed body unpacks to is not known before. */
const LEFT_TO_BEGUN = 1 / 8;
/** Part of the requests that must be free before a connection is read on after a refusal: it may send many at once. */
const FREE_TO_READ_ON = 1 / 8;

/** The requests of one kind of work that are under way, and their bytes. Admission says when one counts. */
export class Pool {
	requests = 0;
	bytes = 0;
	readonly now: () => number;
	/** Most busy requests, as long as they take. */
	#most: number;
	#working = 0;
	/** Requests whose work has not begun, with the times at which they came, the first one first. */
	readonly #arriving = new Map<Permit, number>();
	/** Those of them that came longer ago than work may take, and that can be given up. */
	readonly #slow = new Map<Permit, number>();
	readonly #bounds: WorkBounds;
	readonly #backOff = new BackOff(() => this.#hasBytes && this.#hasRoom(1 - FREE_TO_READ_ON));

	constructor(bounds: WorkBounds, now: () => number) {
		this.#bounds = bounds;
		this.#most = bounds.requests;
		this.now = now;
	}

	enter(connection: Reading | undefined, giveUp: GiveUp | undefined): Permit {
		while (this.#isFull) if (!this.#giveUpSlow()) break;
		const refusal = this.#refusal();
		if (refusal !== undefined) {
			if (connection !== undefined) this.#backOff.hold(connection);
			throw refusal;
		}
		this.requests += 1;
		const permit = new Permit(this, giveUp);
		this.#arriving.set(permit, this.now());
		return permit;
	}

	#refusal(): ServiceError | undefined {
		if (!this.#hasRoom(1)) return new ServiceError("unavailable", "Too many requests are under way; try again later");
		// Before work is done for a body that would be refused in its middle.
		return this.#hasBytes ? undefined : tooManyBytes();
	}

	get #isFull(): boolean {
		return this.requests >= this.#bounds.requests || !this.#hasBytes;
	}

	/**
	 * Gives up a request whose body takes long to arrive, if such requests hold more than their part. It is the newest one:
	 * so the others can be done, however many come.
	 *
	 * @param except is not given up
	 */
	#giveUpSlow(except?: Permit): boolean {
		this.#tellSlow();
		const now = this.now();
		let bytes = 0;
		let newest: Permit | undefined;
		for (const [permit, since] of this.#slow) {
			bytes += permit.bytes;
			if (now - since > LONGEST_ARRIVAL && permit !== except) newest = permit;
		}
		const part = 1 - LEFT_BY_SLOW;
		const isMuch = this.#slow.size > this.#bounds.requests * part || bytes > this.#bounds.bytes * part;
		if (newest === undefined || !isMuch) return false;
		newest.giveUp(new ServiceError("unavailable", "The body takes too long to arrive; try again later"));
		return true;
	}

	/** Whether one request more stays in this part of the bounds. */
	#hasRoom(part: number): boolean {
		return this.requests < this.#bounds.requests * part && this.#busy < this.#most * part;
	}

	/**
	 * Requests that are worked on, or will be soon. One whose body takes long to arrive, or whose answer nobody takes, does
	 * not keep others waiting.
	 */
	get #busy(): number {
		this.#tellSlow();
		return this.#working + this.#arriving.size;
	}

	/** Tells the requests that arrive slowly from those that have just come. */
	#tellSlow(): void {
		const now = this.now();
		for (const [permit, since] of this.#arriving) {
			if (now - since <= LONGEST_WAIT) break;
			this.#arriving.delete(permit);
			if (permit.mayBeGivenUp) this.#slow.set(permit, since);
		}
	}

	get #hasBytes(): boolean {
		return this.bytes <= this.#bounds.bytes * (1 - LEFT_TO_BEGUN);
	}

	begin(permit: Permit): void {
		this.#arrived(permit);
		this.#working += 1;
	}

	/**
	 * Work on a request is done. One request fewer is taken if that was long, else one more: so half of them wait no longer
	 * than they may, and a single one that takes long is no reason to refuse others.
	 *
	 * @param time of the work, with its wait, in milliseconds
	 */
	done(time: number): void {
		const { requests } = this.#bounds;
		const most = this.#most + (time > LONGEST_WAIT ? -1 : 1);
		this.#most = Math.min(Math.max(most, FEW), requests);
		this.#working -= 1;
		this.#backOff.roomed();
	}

	take(permit: Permit, bytes: number): void {
		const bound = this.#bounds.bytes * (permit.bytes + bytes < LARGE_FROM ? 1 : 1 - LEFT_BY_LARGE);
		// One that is alone is taken whatever its size: it would be refused again and again.
		const isTooMuch = () => this.bytes > permit.bytes && this.bytes + bytes > bound;
		while (isTooMuch()) if (!this.#giveUpSlow(permit)) throw tooManyBytes();
		this.bytes += bytes;
	}

	leave(permit: Permit): void {
		this.#arrived(permit);
		this.requests -= 1;
		this.bytes -= permit.bytes;
		this.#backOff.roomed();
	}

	#arrived(permit: Permit): void {
		this.#arriving.delete(permit);
		this.#slow.delete(permit);
	}
}

/** The permit of an admitted request. The request counts until all who hold the permit have released it. */
export class Permit {
	/** What counts of it. */
	bytes = 0;
	readonly #pool: Pool;
	readonly #giveUp: GiveUp | undefined;
	#holders = 0;
	#over = false;

	constructor(pool: Pool, giveUp: GiveUp | undefined) {
		this.#pool = pool;
		this.#giveUp = giveUp;
	}

	get mayBeGivenUp(): boolean {
		return this.#giveUp !== undefined;
	}

	/** Ends the request, and lets go of it whoever holds it. */
	giveUp(error: ServiceError): void {
		this.#leave();
		this.#giveUp?.(error);
	}

	/**
	 * Counts bytes of the request's body until the request is over. Bytes of a request that is over do not count.
	 *
	 * @throws ServiceError `unavailable` when they would pass the bound; then they do not count
	 */
	take(bytes: number): void {
		if (this.#over) return;
		this.#pool.take(this, bytes);
		this.bytes += bytes;
	}

	/**
	 * Counts the answer, as {@link take} does. A small one does not count: the number of requests bounds those, and what
	 * was stored is not to be answered with a refusal.
	 *
	 * @throws ServiceError `unavailable` when it would pass the bound
	 */
	answer(bytes: number): void {
		if (bytes > SMALL_ANSWER) this.take(bytes);
	}

	/**
	 * Holds the request, as {@link hold} does, for the work that begins when its body is there. To be called once, and so is
	 * what it gives.
	 */
	work(): () => void {
		const release = this.hold();
		const pool = this.#pool;
		const start = pool.now();
		pool.begin(this);
		return () => {
			pool.done(pool.now() - start);
			release();
		};
	}

	/** Holds the request until the function that is returned is called. Calling it twice is harmless. */
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
	return new ServiceError("unavailable", "Requests and answers under way take too much memory; try again later");
}
