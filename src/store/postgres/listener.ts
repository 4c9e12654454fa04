import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import type { ThreadLogger } from "../../threads/worker-thread.ts";
import { requireWrites } from "./dial.ts";
import type { Primary } from "./primary.ts";

type Listen = (payload: string | undefined) => void;

/** Milliseconds between two calls of the listeners without a notification. */
const POLL_INTERVAL = 1_000;
/** Milliseconds between two attempts to connect. */
const RECONNECT_DELAY = 250;
/** Milliseconds between two checks that the server responds and accepts writes. */
const CHECK_INTERVAL = 5_000;

/**
 * Listens for notifications on a connection of its own, and reconnects when it breaks. Notifications are only hints:
 * listeners are also called every second.
 */
export class Listener implements AsyncDisposable {
	readonly #primary: Primary | undefined;
	readonly #logger: ThreadLogger;
	readonly #listeners = new Map<string, Set<Listen>>();
	readonly #closing = new AbortController();
	readonly #poll: NodeJS.Timeout;
	#client: pg.Client | undefined;
	#listening: Promise<void> | undefined;

	/** @param primary undefined when notifications are off: the listeners are then only called every second */
	constructor(primary: Primary | undefined, log: ThreadLogger) {
		this.#primary = primary;
		this.#logger = log;
		this.#poll = setInterval(() => this.#callAll(), POLL_INTERVAL);
		this.#poll.unref();
	}

	/** @param channel an identifier of lower-case letters, digits and `_` */
	add(channel: string, listener: Listen): void {
		if (!/^[a-z_][a-z0-9_]*$/.test(channel)) throw new Error(`"${channel}" is not a valid name of a channel`);
		this.#listeners.getOrInsertComputed(channel, () => new Set()).add(listener);
		// Each later connection listens to this channel too: see #passOn.
		this.#client?.query(`LISTEN ${channel}`).then(
			() => this.#call(listener, undefined),
			() => undefined,
		);
		if (this.#primary !== undefined) this.#listening ??= this.#listen(this.#primary);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		clearInterval(this.#poll);
		this.#closing.abort();
		await this.#listening;
	}

	/** Keeps a connection open until the listener is closed. Never rejects. */
	async #listen(primary: Primary): Promise<void> {
		const { signal } = this.#closing;
		while (!signal.aborted) {
			// A failed attempt starts a search for the primary, which logs the reasons.
			const client = await primary.openConnection(CHECK_INTERVAL).catch(() => undefined);
			if (client !== undefined) await this.#passOn(client).catch(() => undefined);
			if (!signal.aborted) await delay(RECONNECT_DELAY, undefined, { signal }).catch(() => undefined);
		}
	}

	/**
	 * Passes on the notifications of a connection until it breaks, the server does not respond, or it no longer accepts
	 * writes.
	 */
	async #passOn(client: pg.Client): Promise<void> {
		const ended = Promise.withResolvers<never>();
		let check: NodeJS.Timeout | undefined;
		ended.promise.catch(() => undefined);
		const { signal } = this.#closing;
		const stop = () => ended.reject(signal.reason);
		signal.addEventListener("abort", stop);
		if (signal.aborted) stop();
		client.on("error", (error) => ended.reject(error));
		client.on("end", () => ended.reject(new Error("the connection has ended")));
		client.on("notification", ({ channel, payload = "" }) => {
			for (const listener of this.#listeners.get(channel) ?? []) this.#call(listener, payload);
		});
		try {
			this.#client = client;
			const channels = [...this.#listeners.keys()].map((channel) => client.query(`LISTEN ${channel}`));
			await Promise.race([Promise.all(channels), ended.promise]);
			this.#callAll();
			check = setInterval(() => requireWrites(client).catch(ended.reject), CHECK_INTERVAL);
			check.unref();
			await ended.promise;
		} finally {
			clearInterval(check);
			this.#client = undefined;
			signal.removeEventListener("abort", stop);
			client.end().catch(() => undefined);
		}
	}

	#callAll(): void {
		for (const listeners of this.#listeners.values()) for (const listener of listeners) this.#call(listener, undefined);
	}

	#call(listener: Listen, payload: string | undefined): void {
		try {
			listener(payload);
		} catch (error) {
			this.#logger.error({ err: error }, "a listener of the store failed");
		}
	}
}
