import type { Link } from "../../threads/link.ts";
import type { CopyRequest, WriteRequest } from "./messages.ts";

/** How long after a commit the length of the write-ahead log is looked at, in milliseconds. */
const lookAfter = 50;

/**
 * Keeps the write-ahead log short. Copying a long one into the database takes as long as many commits, so a thread of
 * its own does most of it. Only the end, which grows while that thread works, is left to the writing thread: the log
 * begins anew once all of it was copied.
 */
export class Checkpoints {
	readonly #copier: Link<CopyRequest>;
	readonly #writer: Link<WriteRequest>;
	#look: NodeJS.Timeout | undefined;

	constructor(copier: Link<CopyRequest>, writer: Link<WriteRequest>) {
		this.#copier = copier;
		this.#writer = writer;
	}

	/** To be called after commits. */
	committed(): void {
		this.#look ??= setTimeout(() => {
			// What fails is in the log of the link, and is tried again when the write-ahead log has grown.
			this.#shorten()
				.catch(() => undefined)
				.finally(() => {
					this.#look = undefined;
				});
		}, lookAfter).unref();
	}

	/** Looks no more. */
	stop(): void {
		clearTimeout(this.#look);
	}

	async #shorten(): Promise<void> {
		const copied = await this.#copier.send({ kind: "copy" }, (value: boolean) => value);
		if (copied) await this.#writer.send({ kind: "finishCopy" }, () => undefined);
	}
}
