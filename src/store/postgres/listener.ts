import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import type { ThreadLog } from "../../threads/worker-thread.ts";
import { requireWrites } from "./dial.ts";
import type { Primary } from "./primary.ts";

type Listen = (payload: string | undefined) => void;

/** Time between two calls of the listeners without a notification, in milliseconds. */
const POLL = 1_000;
/** Time between two attempts to connect, in milliseconds. */
const PAUSE = 250;
/** Time between two questions whether the server is there and takes writes, in milliseconds. */
const QUESTION = 5_000;

/**
 * Listens for notifications on a connection of its own, which it renews when it breaks. A notification is a hint:
 * listeners are called every second too.
 */
export class Listener implements AsyncDisposable {
	readonly #primary: Primary | undefined;
	readonly #log: ThreadLog;
	readonly #listeners = new Map<string, Set<Listen>>();
	readonly #closing = new AbortController();
	readonly #poll: NodeJS.Timeout;
	#client: pg.Client | undefined;
	#listening: Promise<void> | undefined;

	/** @param primary undefined for a listener that only polls */
	constructor(primary: Primary | undefined, log: ThreadLog) {
		this.#primary = primary;
		this.#log = log;
		this.#poll = setInterval(() => this.#callAll(), POLL);
		this.#poll.unref();
	}

	/** @param channel an identifier of lower-case letters, digits and `_` */
	add(channel: string, listener: Listen): void {
		if (!/^[a-z_][a-z0-9_]*$/.test(channel)) throw new Error(`"${channel}" is not a channel`);
		this.#listeners.getOrInsertComputed(channel, () => new Set()).add(listener);
		// A new connection listens to it too.
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

	/** Never fails. */
	async #listen(primary: Primary): Promise<void> {
		const { signal } = this.#closing;
		while (!signal.aborted) {
			// The search for the server, which the attempt starts, reports what is wrong.
			const client = await primary.dial(QUESTION).catch(() => undefined);
			if (client !== undefined) await this.#follow(client).catch(() => undefined);
			if (!signal.aborted) await delay(PAUSE, undefined, { signal }).catch(() => undefined);
		}
	}

	/** Tells of the notifications of a connection until it breaks, is silent, or the server takes no writes any more. */
	async #follow(client: pg.Client): Promise<void> {
		const ended = Promise.withResolvers<never>();
		let question: NodeJS.Timeout | undefined;
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
			question = setInterval(() => requireWrites(client).catch(ended.reject), QUESTION);
			question.unref();
			await ended.promise;
		} finally {
			clearInterval(question);
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
			this.#log.error({ err: error }, "a listener of the store failed");
		}
	}
}
