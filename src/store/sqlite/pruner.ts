import type { Link } from "../../threads/link.ts";
import type { PrunePolicy } from "../store.ts";
import type { Prunable, ReadRequest, WriteRequest } from "./messages.ts";

/** Updates that one transaction removes, so that appends need not wait long. */
const removedAtOnce = 100;

/**
 * Removes what a policy no longer keeps. The reading thread looks for it, conversation by conversation, and the
 * writing thread removes it between its batches, so a search through many conversations holds up no append.
 */
export class Pruner {
	readonly #writer: Link<WriteRequest>;
	readonly #reader: Link<ReadRequest>;
	/** The conversation after which the next step looks. */
	#after = 0;

	constructor(writer: Link<WriteRequest>, reader: Link<ReadRequest>) {
		this.#writer = writer;
		this.#reader = reader;
	}

	/** Removes up to the policy's limit; fewer only when every conversation was looked at. */
	async step(policy: PrunePolicy): Promise<number> {
		const { limit, updatesPerConversation } = policy;
		const receivedBefore = policy.receivedBefore ?? -(2n ** 62n);
		const below = await this.#reader.send({ kind: "cutoff", receivedBefore }, (sequence: number) => sequence);
		let removed = 0;
		while (removed < limit) {
			const atOnce = Math.min(limit - removed, removedAtOnce);
			const gone = await this.#remove({ kind: "removeExpired", below, receivedBefore, limit: atOnce });
			removed += gone;
			if (gone < atOnce) break;
		}
		const start = this.#after;
		let wrapped = start === 0;
		while (removed < limit) {
			const found = await this.#reader.send(
				{
					kind: "findPrunable",
					after: this.#after,
					limit: Math.min(limit - removed, removedAtOnce),
					below,
					receivedBefore,
					updatesPerConversation,
				},
				(prunable: Prunable) => prunable,
			);
			if (found.sequences.length > 0) removed += await this.#remove({ kind: "remove", sequences: found.sequences });
			this.#after = found.next ?? 0;
			if (found.next === undefined && wrapped) break;
			if (found.next === undefined) wrapped = true;
			else if (wrapped && start > 0 && found.next >= start) break;
		}
		return removed;
	}

	#remove(request: WriteRequest): Promise<number> {
		return this.#writer.send(request, (removed: number) => removed);
	}
}
