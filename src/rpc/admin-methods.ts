import { fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { type AccessKeySchema, AccessKeyService } from "../../gen/conversations/v1/access_key_service_pb.js";
import { AuditService } from "../../gen/conversations/v1/audit_service_pb.js";
import { BudgetService } from "../../gen/conversations/v1/budget_service_pb.js";
import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import {
	type AssignOwnerRequest,
	ConversationOwnerService,
} from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import { ConversationSearchService } from "../../gen/conversations/v1/conversation_search_service_pb.js";
import { RefusedPostService } from "../../gen/conversations/v1/refused_post_service_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import type { AccessKeys, ListedKey } from "../access/access-keys.ts";
import { type Audit, entryOf } from "../access/audit.ts";
import { OWNER, type Principal } from "../access/keys.ts";
import type { Budgets } from "../budgets/budgets.ts";
import { shownBudget } from "../budgets/shown.ts";
import type { UsageReads } from "../budgets/spending.ts";
import type { ConversationReads, Reads } from "../conversations/conversation-reads.ts";
import { conditionsOf, invalid, uuid } from "../conversations/read/filter.ts";
import { pageSize, readPageToken, writePageToken } from "../conversations/read/page.ts";
import type { RetryRefusedPosts } from "../conversations/refused/list-and-retry.ts";
import { ServiceError } from "../errors.ts";
import { fromMicroseconds, toMicroseconds } from "../record/json/scalars.ts";
import type { BudgetRow } from "../store/budgets.ts";
import type { Condition } from "../store/condition.ts";
import type { Unassigned } from "../store/owners.ts";
import type { Store } from "../store/store.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** Last second of the year 9999, the largest time that a protobuf timestamp may have. */
const LAST_SECOND = 253_402_300_799n;

/** The methods of `AccessKeyService`. */
export function accessKeyMethods(keys: AccessKeys): readonly RpcMethod[] {
	const { createAccessKey, listAccessKeys, revokeAccessKey } = AccessKeyService.method;
	return [
		unary(createAccessKey, async ({ name, scopes, owner, expiresAt }, caller) => {
			if (expiresAt !== undefined && expiresAt.seconds > LAST_SECOND)
				throw invalid("expires_at", "must be before the year 10000");
			const asked = { name, scopes, owner, expiresAt: expiresAt && toMicroseconds(expiresAt) };
			const { key, row } = await keys.create(asked, caller);
			return { key, accessKey: toAccessKey({ ...row, configured: false }) };
		}),
		unary(listAccessKeys, async (_, caller) => ({ accessKeys: keys.list(caller).map(toAccessKey) })),
		unary(revokeAccessKey, async ({ name }, caller) => {
			const row = await keys.revoke(name, caller);
			return { accessKey: toAccessKey({ ...row, configured: false }) };
		}),
	];
}

function toAccessKey(key: ListedKey): MessageInitShape<typeof AccessKeySchema> {
	const { name, scopes, owner, configured } = key;
	const common = { name, scopes: [...scopes], owner: owner ?? "", configured };
	if (key.configured) return common;
	const time = (micros: bigint | undefined) => (micros === undefined ? undefined : fromMicroseconds(micros));
	const { createdAt, createdBy, expiresAt, revokedAt, lastUsedAt } = key;
	return {
		...common,
		createdBy,
		createdAt: fromMicroseconds(createdAt),
		expiresAt: time(expiresAt),
		revokedAt: time(revokedAt),
		lastUsedAt: time(lastUsedAt),
	};
}

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
export function ownerMethods(store: OwnersStore, log: OwnersLog): readonly RpcMethod[] {
	return [
		unary(ConversationOwnerService.method.assignOwner, async (request, caller) => {
			if (caller.owner !== undefined)
				throw new ServiceError("permission_denied", "A key with an owner cannot assign conversations", {
					caller: caller.name,
				});
			const { owner } = request;
			if (!OWNER.test(owner)) throw invalid("owner", "must be 1 to 64 letters, digits, dots, dashes and underscores");
			const audit = entryOf("conversations.assigned", caller, owner);
			let assigned = 0;
			try {
				for await (const of of unassignedOf(request, store))
					for (let changed = STEP; changed === STEP; assigned += changed)
						changed = await store.assignOwner({ owner, of, limit: STEP, audit });
			} finally {
				if (assigned > 0) log.ownerAssigned(owner, assigned, caller.name);
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

/** Number of conversations that a request by a filter erases by default, and at most. */
const DEFAULT_MAX = 50;
const LARGEST_MAX = 1000;

/** The methods of `ConversationEraseService`. */
export function eraseMethods(reads: {
	/** What a caller can erase. */
	readonly of: (caller: Principal) => Pick<Reads, "erasing">;
}): readonly RpcMethod[] {
	return [
		unary(
			ConversationEraseService.method.deleteConversation,
			async (request, caller) => ({ erased: BigInt(await reads.of(caller).erasing.erase(request, caller)) }),
			{ conversationId: ({ id }) => id },
		),
		unary(ConversationEraseService.method.deleteConversations, async ({ filter, dryRun, max }, caller) => {
			if (max < 0) throw invalid("max", "must not be negative");
			const limit = Math.min(max === 0 ? DEFAULT_MAX : max, LARGEST_MAX);
			const { ids, matching } = await reads.of(caller).erasing.eraseMatching({ filter, max: limit, dryRun }, caller);
			return { erased: BigInt(ids.length), matching: BigInt(matching), ids: dryRun ? [...ids] : [] };
		}),
	];
}

/** The methods of `RefusedPostService`. */
export function refusedPostMethods(
	reads: Pick<ConversationReads, "of">,
	retries: Pick<RetryRefusedPosts, "retry">,
	audit: Pick<Audit, "add">,
): readonly RpcMethod[] {
	const { listRefusedPosts, getRefusedPost, retryRefusedPosts } = RefusedPostService.method;
	return [
		unary(listRefusedPosts, (request, caller) => reads.of(caller).refused.list(request)),
		unary(getRefusedPost, async ({ id }, caller) => {
			const { post, body } = await reads.of(caller).refused.get(id, caller.scopes.has("secrets"));
			if (body !== undefined) await audit.add("secrets.read", caller, `refused post ${id}`);
			return { refusedPost: post, ...(body === undefined ? {} : { body }) };
		}),
		unary(retryRefusedPosts, (request, caller) => retries.retry(request, caller)),
	];
}

/** Name of the list in page tokens. */
const LIST = "audit";

/** The method of `AuditService`. */
export function auditMethods(audit: Pick<Audit, "list">): readonly RpcMethod[] {
	return [
		unary(AuditService.method.listAudit, async ({ pageSize: size, pageToken }, { owner }) => {
			const limit = pageSize(size);
			const before = pageToken === "" ? undefined : readPageToken(LIST, {}, pageToken);
			const found = await audit.list({ owner, before, limit: limit + 1 });
			const page = found.slice(0, limit);
			const last = found.length > limit ? page.at(-1) : undefined;
			return {
				entries: page.map(({ at, ...entry }) => ({ ...entry, at: fromMicroseconds(at) })),
				nextPageToken: last === undefined ? "" : writePageToken(LIST, {}, last.number),
			};
		}),
	];
}

/** Writes down that the index is written anew. */
export interface SearchLog {
	/** A caller has asked for it. */
	searchRebuilt(caller: string): void;
}

/** The method that lets the index be written anew. */
export function rebuildMethod(store: Pick<Store, "textIndex">, log: SearchLog): RpcMethod {
	return unary(ConversationSearchService.method.rebuildSearchIndex, async (_, caller) => {
		if (caller.owner !== undefined)
			throw new ServiceError("permission_denied", "A key with an owner cannot rebuild the index", {
				caller: caller.name,
			});
		await store.textIndex.reset();
		log.searchRebuilt(caller.name);
		return {};
	});
}

/** The methods of `BudgetService`. */
export function budgetMethods(
	budgets: Budgets,
	store: Pick<Store, "listConversations" | "tables">,
	reads: UsageReads,
): readonly RpcMethod[] {
	const { method } = BudgetService;
	const shown = async (row: BudgetRow) => ({ budget: await shownBudget(store, reads, row, true, Date.now()) });
	return [
		unary(method.createBudget, async (request, caller) => await shown(await budgets.create(request, request, caller))),
		unary(method.listBudgets, async (_, caller) => {
			const rows = await budgets.list(caller);
			return { budgets: await Promise.all(rows.map((row) => shownBudget(store, reads, row, false, Date.now()))) };
		}),
		unary(method.getBudget, async (request, caller) => await shown(await budgets.get(request, caller))),
		unary(
			method.updateBudget,
			async (request, caller) => await shown(await budgets.update(request, request, request.updateMask?.paths, caller)),
		),
		unary(method.deleteBudget, async (request, caller) => {
			await budgets.delete(request, caller);
			return {};
		}),
	];
}
