import { setTimeout as delay } from "node:timers/promises";
import { ServiceError } from "../../../src/errors.ts";
import type { Store } from "../../../src/store/store.ts";
import { append, type Sample, sample } from "../samples.ts";

/** Milliseconds between two attempts of a sender or a reader. */
const RETRY_DELAY = 50;

/** An update: its sequence and its conversation. */
export type Entry = readonly [sequence: bigint, conversationId: string];

/** Runs a call again while the store is unavailable. */
async function untilAvailable<T>(call: () => Promise<T>): Promise<T> {
	for (;;) {
		try {
			return await call();
		} catch (error) {
			if (!(error instanceof ServiceError) || error.kind !== "unavailable") throw error;
			await delay(RETRY_DELAY);
		}
	}
}

/** Appends as a sender does, which sends again what gets no success. Returns the sequence. */
export async function send(store: Store, update: Sample): Promise<bigint> {
	return (await untilAvailable(() => append(store, update))).sequence;
}

export async function newestOf(store: Store): Promise<bigint> {
	return (await store.updates.range()).newest;
}

export async function listed(store: Store, after: bigint): Promise<Entry[]> {
	const page = await store.updates.list({ after, limit: 100_000, withRecords: false });
	return page.map(({ sequence, conversationId }) => [sequence, conversationId]);
}

/** Follows the log of all updates from a sequence on, until it has an update. Returns the updates as it found them. */
export async function followThrough(store: Store, after: bigint, through: bigint): Promise<Entry[]> {
	return await follow(store, after, (last) => last >= through);
}

async function follow(store: Store, after: bigint, isOver: (last: bigint) => boolean): Promise<Entry[]> {
	const seen: Entry[] = [];
	for (let isLast = false; !isLast; ) {
		const last = seen.at(-1)?.[0] ?? after;
		isLast = isOver(last);
		seen.push(...(await untilAvailable(() => listed(store, last))));
	}
	return seen;
}

/** Senders that append through two replicas, and a reader of a third one that follows the log, until they are stopped. */
export class Traffic {
	readonly #reader: Store;
	readonly #acknowledged: Entry[] = [];
	#isOver = false;
	#isSent = false;
	readonly #sending: Promise<unknown>;
	readonly #following: Promise<Entry[]>;

	private constructor(writers: readonly Store[], reader: Store, after: bigint) {
		this.#reader = reader;
		this.#sending = Promise.all(writers.flatMap((store) => [1, 2, 3].map(() => this.#send(store))));
		this.#following = follow(reader, after, () => this.#isSent);
		for (const running of [this.#sending, this.#following]) running.catch(() => undefined);
	}

	static async start(writers: readonly Store[], reader: Store): Promise<Traffic> {
		return new Traffic(writers, reader, await newestOf(reader));
	}

	/** Number of updates that were acknowledged. */
	get count(): number {
		return this.#acknowledged.length;
	}

	/** Notes an update that a test has sent itself. */
	add(...entry: Entry): void {
		this.#acknowledged.push(entry);
	}

	/**
	 * Stops the senders and the reader.
	 *
	 * @returns what was acknowledged, what the reader saw, and what a list has now, in order
	 */
	async stop(): Promise<Readonly<Record<"acknowledged" | "seen" | "stored", readonly Entry[]>>> {
		this.#isOver = true;
		await this.#sending;
		this.#isSent = true;
		const seen = await this.#following;
		const acknowledged = this.#acknowledged.toSorted(([a], [b]) => Number(a - b));
		const [first = 1n] = acknowledged[0] ?? [];
		return { acknowledged, seen, stored: await listed(this.#reader, first - 1n) };
	}

	async #send(store: Store): Promise<void> {
		while (!this.#isOver) {
			const update = sample();
			this.add(await send(store, update), update.conversationId);
		}
	}
}
