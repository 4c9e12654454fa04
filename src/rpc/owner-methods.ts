import {
	type AssignOwnerRequest,
	ConversationOwnerService,
} from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import { OWNER } from "../access/keys.ts";
import { invalid, uuid } from "../conversations/read/filter.ts";
import { ServiceError } from "../errors.ts";
import type { Unassigned } from "../store/owners.ts";
import type { Store } from "../store/store.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** Maximum number of conversations that a transaction changes, so that posts do not wait for long. */
const STEP = 200;
/** Maximum number of ids in a request. */
const MAX_IDS = 1000;

/** Writes down the changes. */
export interface OwnersLog {
	/** A caller has given conversations an owner. */
	ownerAssigned(owner: string, conversations: number, caller: string): void;
}

/** The method of `ConversationOwnerService`. */
export function ownerMethods(store: Pick<Store, "assignOwner">, log: OwnersLog): readonly RpcMethod[] {
	return [
		unary(ConversationOwnerService.method.assignOwner, async (request, caller) => {
			if (caller.owner !== undefined)
				throw new ServiceError("permission_denied", "A key with an owner cannot assign conversations", {
					caller: caller.name,
				});
			const { owner } = request;
			if (!OWNER.test(owner)) throw invalid("owner", "must be 1 to 64 letters, digits, dots, dashes and underscores");
			const of = unassignedOf(request);
			let assigned = 0;
			try {
				for (let changed = STEP; changed === STEP; assigned += changed)
					changed = await store.assignOwner({ owner, of, limit: STEP });
			} finally {
				if (assigned > 0) log.ownerAssigned(owner, assigned, caller.name);
			}
			return { assigned: BigInt(assigned) };
		}),
	];
}

/** @throws ServiceError `invalid_argument` when the request does not say which conversations it means */
function unassignedOf({ conversations }: AssignOwnerRequest): Unassigned {
	switch (conversations.case) {
		case "ids": {
			const { ids } = conversations.value;
			if (ids.length === 0 || ids.length > MAX_IDS) throw invalid("ids", `must have 1 to ${MAX_IDS} entries`);
			return { ids: ids.map((id) => uuid(id, "ids")) };
		}
		case "sender":
			if (conversations.value === "") throw invalid("sender", "must not be empty");
			return { sender: conversations.value };
		case "allWithoutOwner":
			if (!conversations.value) throw invalid("all_without_owner", "must be true");
			return "all without an owner";
		case undefined:
			throw invalid("conversations", "must name ids, a sender, or all without an owner");
	}
}
