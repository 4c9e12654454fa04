import { fromBinary } from "@bufbuild/protobuf";
import {
	type AssignOwnerRequest,
	ConversationOwnerService,
} from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import type { Audit } from "../access/audit.ts";
import { OWNER } from "../access/keys.ts";
import { conditionsOf, invalid, uuid } from "../conversations/read/filter.ts";
import { ServiceError } from "../errors.ts";
import type { Condition } from "../store/condition.ts";
import type { Unassigned } from "../store/owners.ts";
import type { Store } from "../store/store.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** Maximum number of conversations that a transaction changes, so that posts do not wait for long. */
const STEP = 200;
/** Number of conversations that are listed at once. */
const PAGE = 1000;
/** Maximum number of ids in a request. */
const MAX_IDS = 1000;

/** Writes down the changes. */
export interface OwnersLog {
	/** A caller has given conversations an owner. */
	ownerAssigned(owner: string, conversations: number, caller: string): void;
}

/** What the method needs of the store. */
export type OwnersStore = Pick<Store, "assignOwner" | "countWithoutSender" | "listConversations">;

/** The method of `ConversationOwnerService`. */
export function ownerMethods(store: OwnersStore, log: OwnersLog, audit: Pick<Audit, "add">): readonly RpcMethod[] {
	return [
		unary(ConversationOwnerService.method.assignOwner, async (request, caller) => {
			if (caller.owner !== undefined)
				throw new ServiceError("permission_denied", "A key with an owner cannot assign conversations", {
					caller: caller.name,
				});
			const { owner } = request;
			if (!OWNER.test(owner)) throw invalid("owner", "must be 1 to 64 letters, digits, dots, dashes and underscores");
			let assigned = 0;
			try {
				for await (const of of unassignedOf(request, store))
					for (let changed = STEP; changed === STEP; assigned += changed)
						changed = await store.assignOwner({ owner, of, limit: STEP });
			} finally {
				if (assigned > 0) {
					log.ownerAssigned(owner, assigned, caller.name);
					await audit.add("conversations.assigned", caller, owner, `${assigned}`);
				}
			}
			return { assigned: BigInt(assigned), leftWithoutSender: BigInt(await store.countWithoutSender()) };
		}),
	];
}

/**
 * Returns which conversations the request means, in parts that are assigned one after the other.
 *
 * @throws ServiceError `invalid_argument` when the request does not say it
 */
function unassignedOf(
	{ conversations }: AssignOwnerRequest,
	store: OwnersStore,
): Iterable<Unassigned> | AsyncIterable<Unassigned> {
	switch (conversations.case) {
		case "ids": {
			const { ids } = conversations.value;
			if (ids.length === 0 || ids.length > MAX_IDS) throw invalid("ids", `must have 1 to ${MAX_IDS} entries`);
			return [{ ids: ids.map((id) => uuid(id, "ids")) }];
		}
		case "sender":
			if (conversations.value === "") throw invalid("sender", "must not be empty");
			return [{ sender: conversations.value }];
		case "allWithoutOwner":
			if (!conversations.value) throw invalid("all_without_owner", "must be true");
			return ["all without an owner"];
		case "withoutSender": {
			const conditions = conditionsOf(conversations.value.filter, "without_sender.filter.");
			return conditions.length === 0 ? [{ withoutSender: "all" }] : listWithoutSender(store, conditions);
		}
		case undefined:
			throw invalid("conversations", "must name ids, a sender, those without a sender, or all without an owner");
	}
}

/** Lists the conversations without an owner and a sender that meet conditions. */
async function* listWithoutSender(store: OwnersStore, conditions: readonly Condition[]): AsyncGenerator<Unassigned> {
	for (let before: bigint | undefined; ; ) {
		const page = await store.listConversations({ conditions, before, limit: PAGE, withRecords: false });
		const found = page.filter(({ summary }) => {
			const { sender, owner } = fromBinary(ConversationSummarySchema, summary);
			return sender === "" && owner === "";
		});
		if (found.length > 0) yield { withoutSender: found.map(({ conversationId }) => conversationId) };
		before = page.at(-1)?.sequence;
		if (page.length < PAGE) return;
	}
}
