import { ServiceError } from "../../errors.ts";
import type { ThreadLog } from "../../threads/worker-thread.ts";
import { Announcer } from "../announcer.ts";
import type { LogTable } from "../rows.ts";
import type { LogListener } from "../store.ts";
import type { Connections } from "./connections.ts";
import type { Newest } from "./log.ts";
import { CHANNEL } from "./numbered-sql.ts";

/** Announces what this process appends to a database, and from the first subscription on what others append. */
export class Follower {
	readonly #connections: Connections;
	readonly #log: ThreadLog;
	readonly #readNewest: () => Promise<Newest>;
	readonly #announcers: Readonly<Record<LogTable, Announcer>>;
	#listens = false;
	#looking = false;
	/** Whether something was appended since the look that is under way began. */
	#looksAgain = false;

	/** @param readNewest fails when the store is closed */
	constructor(connections: Connections, log: ThreadLog, readNewest: () => Promise<Newest>) {
		this.#connections = connections;
		this.#log = log;
		this.#readNewest = readNewest;
		this.#announcers = { updates: new Announcer(log), events: new Announcer(log) };
	}

	/** Returns how to stop it. */
	subscribe(log: LogTable, listener: LogListener): () => void {
		if (!this.#listens) {
			this.#listens = true;
			this.#connections.listen(CHANNEL, (payload) => this.#hear(payload));
		}
		return this.#announcers[log].subscribe(listener);
	}

	/** Announces what was committed. */
	announce({ updates, events }: Newest): void {
		this.#announcers.updates.announce(updates);
		this.#announcers.events.announce(events);
	}

	/**
	 * Hears that a process has appended, with the newest sequences, or that this may have been missed. Whoever may connect to
	 * the database can notify, so only what is looked up is announced.
	 */
	#hear(payload: string | undefined): void {
		const [, updates, events] = /^(\d{1,19}) (\d{1,19})$/.exec(payload ?? "") ?? [];
		const known = this.#known();
		const isKnown =
			updates !== undefined &&
			events !== undefined &&
			BigInt(updates) <= known.updates &&
			BigInt(events) <= known.events;
		if (isKnown) return;
		if (this.#looking) this.#looksAgain = true;
		else void this.#lookUp();
	}

	async #lookUp(): Promise<void> {
		this.#looking = true;
		do {
			this.#looksAgain = false;
			// It was announced before the newest sequences are read, and so is committed then.
			const known = this.#known();
			try {
				const newest = await this.#readNewest();
				this.#found("updates", newest, known);
				this.#found("events", newest, known);
			} catch {
				// The next hint or poll looks again; calls say what is wrong with the database.
			}
		} while (this.#looksAgain);
		this.#looking = false;
	}

	#found(log: LogTable, { [log]: newest }: Newest, { [log]: known }: Newest): void {
		if (newest < known) {
			const message = `the database has lost what came after sequence ${newest}; the newest one was ${known}`;
			this.#log.error({ err: new ServiceError("data_loss", message) }, "the database has lost commits");
			this.#announcers[log].announceLoss(newest);
		} else this.#announcers[log].announce(newest);
	}

	#known(): Newest {
		return { updates: this.#announcers.updates.newest, events: this.#announcers.events.newest };
	}
}
