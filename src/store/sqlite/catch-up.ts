import type { Link } from "../../threads/link.ts";
import type { WriteRequest } from "./messages.ts";

/** How long lists may stay behind when nobody asks for one, in milliseconds. It bounds what a start has to do. */
const behindFor = 1_000;

/** Sees to it that lists are brought up to date: before one is read, and a while after appends. */
export class CatchUp {
	readonly #writer: Link<WriteRequest>;
	/** Lists know every update through this one. */
	#listed = 0n;
	#step: Promise<void> | undefined;
	#timer: NodeJS.Timeout | undefined;

	constructor(writer: Link<WriteRequest>) {
		this.#writer = writer;
	}

	/** To be called after commits, with the newest sequence. */
	committed(newest: bigint): void {
		this.#timer ??= setTimeout(() => {
			this.#timer = undefined;
			// What fails is in the log of the link, and is tried again after the next commit.
			this.through(newest).catch(() => undefined);
		}, behindFor).unref();
	}

	/**
	 * Resolves when lists know every update through `sequence`.
	 *
	 * @throws ServiceError `unavailable` when the database cannot be written
	 */
	async through(sequence: bigint): Promise<void> {
		while (this.#listed < sequence) await this.#stepOn();
	}

	/** Leaves the rest to the writing thread, which does it when it closes. */
	stop(): void {
		clearTimeout(this.#timer);
	}

	/** One step, which all who wait share. */
	#stepOn(): Promise<void> {
		this.#step ??= this.#writer
			.send({ kind: "catchUp" }, (listed: bigint) => {
				this.#listed = listed;
			})
			.finally(() => {
				this.#step = undefined;
			});
		return this.#step;
	}
}
