import type { ConversationFilter } from "../../gen/conversations/v1/conversation_service_pb.js";
import { type AuditedCaller, entryOf } from "../access/audit.ts";
import { invalid, ServiceError } from "../errors.ts";
import type { Condition } from "../store/condition.ts";
import type { StoredConversation } from "../store/conversation-lists.ts";
import { idDigest } from "../store/erasure.ts";
import { conditionsOf, uuid } from "./read/filter.ts";
import type { StoreReads } from "./read/visible-store.ts";

/** Logs an erasure: the SHA-256 of the id in hexadecimal digits, and the name of who asked for it. */
export type OnErased = (digest: string, caller: string) => void;

type ErasableStore = Pick<StoreReads, "erase" | "purge" | "getOwnership" | "listConversations" | "countConversations">;

/**
 * Erases conversations for good.
 *
 * @param store limited to what the callers can see
 */
export function conversationEraser(store: ErasableStore, onErased: OnErased) {
	return { erase, eraseMatching };

	/**
	 * Erases a conversation, and with `withChildren` first those that name it as their parent, and their children, as far as
	 * they have the same owner: another owner may name any id as a parent. Each is
	 * erased in a transaction of its own, the deepest first, so that after a failure the same call erases the rest. Resolves
	 * when it is removed from the files, too: see `Store.purge`.
	 *
	 * @throws ServiceError `not_found` when there is no such conversation that the caller can see; `data_loss` when a record of
	 *   its parent, or of a child or a fork, is damaged
	 */
	async function erase(
		request: { readonly id: string; readonly withChildren: boolean },
		caller: AuditedCaller,
	): Promise<number> {
		const id = uuid(request.id, "id");
		const tree = request.withChildren ? await treeOf(id) : [id];
		let erased = 0;
		for (const one of tree.toReversed()) if (await eraseOne(one, caller)) erased += 1;
		await purge(erased);
		if (erased === 0) throw new ServiceError("not_found", "The conversation does not exist", { conversationId: id });
		return erased;
	}

	/**
	 * Erases conversations that meet a filter. One that no longer meets it when its turn comes is left out. `ids` are the
	 * erased ones, or those that would be erased; `matching` is the number of those that met the filter before.
	 *
	 * @param max maximum number of conversations, from 1 to 1000
	 * @throws ServiceError `invalid_argument` that names the field
	 */
	async function eraseMatching(
		{ filter, max, dryRun }: { filter: ConversationFilter | undefined; max: number; dryRun: boolean },
		caller: AuditedCaller,
	): Promise<{ readonly ids: readonly string[]; readonly matching: number }> {
		const conditions = conditionsOf(filter);
		if (conditions.length === 0) throw invalid("filter", "must have at least one condition");
		const { total } = await store.countConversations({ conditions, group: undefined, limit: 1 });
		const found = await store.listConversations({ conditions, limit: max, withRecords: false });
		const ids = found.map(({ conversationId }) => conversationId);
		if (dryRun) return { ids, matching: total };
		const erased: string[] = [];
		for (const id of ids) if (await eraseOne(id, caller, conditions)) erased.push(id);
		await purge(erased.length);
		return { ids: erased, matching: total };
	}

	/** @param conditions that the conversation must meet; left out for any */
	async function eraseOne(
		conversationId: string,
		caller: AuditedCaller,
		conditions?: readonly Condition[],
	): Promise<boolean> {
		const erasedAt = BigInt(Date.now()) * 1000n;
		const erased = await store.erase({
			conversationId,
			owner: undefined,
			erasedAt,
			audit: entryOf("conversation.erased", caller, idDigest(conversationId)),
			...(conditions && { conditions }),
		});
		if (erased === undefined) return false;
		onErased(idDigest(conversationId), caller.name);
		return true;
	}

	/** Throws an error that says what is erased when its traces cannot be removed from the files. */
	async function purge(erased: number): Promise<void> {
		try {
			await store.purge();
		} catch (error) {
			if (erased === 0 || !(error instanceof ServiceError)) throw error;
			const message = `Erased, but the files of the database may have traces: ${error.message}`;
			throw new ServiceError(error.kind, message, { cause: error });
		}
	}

	/**
	 * Returns the ids of a conversation and of all of its owner below it. A conversation comes after its parent. Below one of
	 * which nothing is stored, none is known to be of its owner.
	 */
	async function treeOf(root: string): Promise<readonly string[]> {
		const ownership = await store.getOwnership(root);
		if (ownership === undefined) return [root];
		const tree = new Set([root]);
		for (const value of tree) {
			const conditions = [{ kind: "equal", field: "parentConversationId", value } as const];
			let last: StoredConversation | undefined;
			do {
				// In an order that posts do not change, so that none is left out.
				const from = last === undefined ? {} : { before: last.sequence, beforeValue: last.orderValue };
				const query = { conditions, order: "created" as const, limit: PAGE, withRecords: false };
				const page = await store.listConversations({ ...query, ...from });
				const ownerships = await Promise.all(page.map((child) => store.getOwnership(child.conversationId)));
				for (const [n, { conversationId }] of page.entries())
					if (ownerships[n]?.owner === ownership.owner) tree.add(conversationId);
				last = page.length === PAGE ? page.at(-1) : undefined;
			} while (last !== undefined);
		}
		return [...tree];
	}
}

const PAGE = 1000;
