import type { Link } from "../../threads/link.ts";
import type { WriteRequest } from "./messages.ts";

/** How long lists may stay behind when nobody asks for one, in milliseconds. It bounds what is left to the next start. */
const behindFor = 1_000;

/** Sees to it that lists are brought up to date: before one is read, and a while after appends. */
export class CatchUp {
	readonly #writer: Link<WriteRequest>;
	/** Commits so far, and up to which of them lists are up to date. The first stands for those of earlier processes. */
	#committed = 1;
	#listed = 0;
	#step: Promise<void> | undefined;
	#timer: NodeJS.Timeout | undefined;

	constructor(writer: Link<WriteRequest>) {
		this.#writer = writer;
	}

	/** To be called after commits. */
	committed(): void {
		this.#committed += 1;
		this.schedule();
	}

	/** Brings lists up to date in a while. */
	schedule(): void {
		this.#timer ??= setTimeout(() => {
			this.#timer = undefined;
			// What fails is in the log of the link, and is tried again after the next commit.
			this.done().catch(() => undefined);
		}, behindFor).unref();
	}

	/**
	 * Resolves when lists know every update that was answered before the call.
	 *
	 * @throws ServiceError `unavailable` when the database cannot be written
	 */
	async done(): Promise<void> {
		const committed = this.#committed;
		while (this.#listed < committed) await this.#stepOn();
	}

	/** Leaves the rest to the writing thread, which does it when it closes. */
	stop(): void {
		clearTimeout(this.#timer);
	}

	/** One step, which all who wait share. */
	#stepOn(): Promise<void> {
		const committed = this.#committed;
		this.#step ??= this.#writer
			.send({ kind: "catchUp" }, () => {
				this.#listed = committed;
			})
			.finally(() => {
				this.#step = undefined;
			});
		return this.#step;
	}
}
