import { fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { type AccessKeySchema, AccessKeyService } from "../../gen/conversations/v1/access_key_service_pb.js";
import { AuditService } from "../../gen/conversations/v1/audit_service_pb.js";
import { BudgetService } from "../../gen/conversations/v1/budget_service_pb.js";
import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import {
	type AssignOwnerRequest,
	ConversationOwnerService,
} from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import { ConversationSearchService } from "../../gen/conversations/v1/conversation_search_service_pb.js";
import {
	type DeliverySchema,
	DeliveryState,
	DeliveryStateSchema,
	type DeliveryTrySchema,
	type EndpointSchema,
	EndpointStateSchema,
	ForwardingService,
	ResumeFrom,
} from "../../gen/conversations/v1/forwarding_service_pb.js";
import { RefusedPostService } from "../../gen/conversations/v1/refused_post_service_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import type { AccessKeys, ListedKey } from "../access/access-keys.ts";
import { entryOf } from "../access/audit.ts";
import { type Principal, requireName } from "../access/keys.ts";
import type { Budgets } from "../budgets/budgets.ts";
import { shownBudget } from "../budgets/shown.ts";
import type { ConversationReads } from "../conversations/conversation-reads.ts";
import { conditionsOf, uuid } from "../conversations/read/filter.ts";
import { pageSize, readPageToken, writePageToken } from "../conversations/read/page.ts";
import { type RetryOptions, retryRefusedPosts } from "../conversations/refused/list-and-retry.ts";
import { invalid, ServiceError } from "../errors.ts";
import { filterOf } from "../forward/endpoint-worker.ts";
import type { Endpoints } from "../forward/endpoints.ts";
import { fromMicroseconds, toMicroseconds } from "../record/json/scalars.ts";
import { planEnum } from "../record/plan.ts";
import type { BudgetRow } from "../store/budgets.ts";
import type { Condition } from "../store/condition.ts";
import { type DeliveryRow, deliveryStates, type ListedEndpoint, type Try } from "../store/forwarding.ts";
import type { Unassigned } from "../store/owners.ts";
import type { Store } from "../store/store.ts";
import type { EventLog } from "../telemetry/log.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

const { byName: STATES } = planEnum(EndpointStateSchema);
const { byName: DELIVERY_STATES } = planEnum(DeliveryStateSchema);
/** Last second of the year 9999, the largest time that a protobuf timestamp may have. */
const LAST_SECOND = 253_402_300_799n;
/** Maximum number of conversations that a transaction gives an owner, so that posts do not wait for long. */
const STEP = 200;
const PAGE = 1000;
const MAX_IDS = 1000;
/** Number of conversations that a request by a filter erases by default, and at most. */
const DEFAULT_MAX = 50;
const LARGEST_MAX = 1000;
const AUDIT = "audit";

type OwnersStore = Pick<Store, "assignOwner" | "countWithoutSender" | "listConversations">;

export interface AdminContext {
	/** What a caller can read and erase. There is no other way for a method to read conversations, so each is limited. */
	readonly reads: Pick<ConversationReads, "of">;
	readonly retries: RetryOptions;
	readonly accessKeys: AccessKeys;
	readonly endpoints: Endpoints;
	readonly budgets: Budgets;
	readonly store: OwnersStore & Pick<Store, "resetIndex" | "tables" | "updates">;
	readonly log: EventLog;
}

/** The methods that manage what is stored, and who may use it. */
export function adminMethods(context: AdminContext): readonly RpcMethod[] {
	const { reads, retries, accessKeys, endpoints, budgets, store, log } = context;
	const { method: keys } = AccessKeyService;
	const { method: erasing } = ConversationEraseService;
	const { method: refused } = RefusedPostService;
	const { method: budget } = BudgetService;
	const shown = async (row: BudgetRow) => ({ budget: await shownBudget(store, reads, row, true, Date.now()) });
	return [
		unary(keys.createAccessKey, async ({ name, scopes, owner, expiresAt }, caller) => {
			if (expiresAt !== undefined && expiresAt.seconds > LAST_SECOND)
				throw invalid("expires_at", "must be before the year 10000");
			const asked = { name, scopes, owner, expiresAt: expiresAt && toMicroseconds(expiresAt) };
			const { key, row } = await accessKeys.create(asked, caller);
			return { key, accessKey: toAccessKey({ ...row, configured: false }) };
		}),
		unary(keys.listAccessKeys, async (_, caller) => ({ accessKeys: accessKeys.list(caller).map(toAccessKey) })),
		unary(keys.revokeAccessKey, async ({ name }, caller) => {
			const row = await accessKeys.revoke(name, caller);
			return { accessKey: toAccessKey({ ...row, configured: false }) };
		}),
		unary(AuditService.method.listAudit, async ({ pageSize: size, pageToken }, { owner }) => {
			const limit = pageSize(size);
			const [before] = readPageToken(AUDIT, {}, pageToken);
			const found = await store.tables.read.listAudit({ owner, before, limit: limit + 1 });
			const page = found.slice(0, limit);
			const last = found.length > limit ? page.at(-1) : undefined;
			return {
				entries: page.map(({ at, ...entry }) => ({ ...entry, at: fromMicroseconds(at) })),
				nextPageToken: last === undefined ? "" : writePageToken(AUDIT, {}, last.number),
			};
		}),
		unary(ConversationOwnerService.method.assignOwner, async (request, caller) => {
			requireNoOwner(caller, "assign conversations");
			const { owner } = request;
			requireName("owner", owner);
			const entry = entryOf("conversations.assigned", caller, owner);
			let assigned = 0;
			try {
				for await (const of of unassignedOf(request, store))
					for (let changed = STEP; changed === STEP; assigned += changed)
						changed = await store.assignOwner({ owner, of, limit: STEP, audit: entry });
			} finally {
				if (assigned > 0) log.emit("owner_assigned", { owner, count: assigned, caller: caller.name });
			}
			return { assigned: BigInt(assigned), leftWithoutSender: BigInt(await store.countWithoutSender()) };
		}),
		unary(erasing.deleteConversation, async (request, caller) => ({
			erased: BigInt(await reads.of(caller).erasing.erase(request, caller)),
		})),
		unary(erasing.deleteConversations, async ({ filter, dryRun, max }, caller) => {
			if (max < 0) throw invalid("max", "must not be negative");
			const limit = Math.min(max === 0 ? DEFAULT_MAX : max, LARGEST_MAX);
			const { ids, matching } = await reads.of(caller).erasing.eraseMatching({ filter, max: limit, dryRun }, caller);
			return { erased: BigInt(ids.length), matching: BigInt(matching), ids: dryRun ? [...ids] : [] };
		}),
		unary(refused.listRefusedPosts, (request, caller) => reads.of(caller).refused.list(request)),
		unary(refused.getRefusedPost, async ({ id }, caller) => {
			const { post, body } = await reads.of(caller).refused.get(id, caller.scopes.has("secrets"));
			const entry = entryOf("secrets.read", caller, `refused post ${id}`);
			if (body !== undefined) await store.tables.write.addAudit(entry);
			return { refusedPost: post, ...(body === undefined ? {} : { body }) };
		}),
		unary(refused.retryRefusedPosts, (request, caller) => retryRefusedPosts(retries, request, caller)),
		unary(ConversationSearchService.method.rebuildSearchIndex, async (_, caller) => {
			requireNoOwner(caller, "rebuild the index");
			await store.resetIndex();
			log.emit("search_rebuilt", { caller: caller.name });
			return {};
		}),
		...forwardingMethods(endpoints, store),
		unary(budget.createBudget, async (request, caller) => await shown(await budgets.create(request, request, caller))),
		unary(budget.listBudgets, async (_, caller) => {
			const rows = await budgets.list(caller);
			return { budgets: await Promise.all(rows.map((row) => shownBudget(store, reads, row, false, Date.now()))) };
		}),
		unary(budget.getBudget, async (request, caller) => await shown(await budgets.get(request, caller))),
		unary(
			budget.updateBudget,
			async (request, caller) => await shown(await budgets.update(request, request, request.updateMask?.paths, caller)),
		),
		unary(budget.deleteBudget, async (request, caller) => {
			await budgets.delete(request, caller);
			return {};
		}),
	];
}

function toAccessKey(key: ListedKey): MessageInitShape<typeof AccessKeySchema> {
	const { name, scopes, owner, configured } = key;
	const common = { name, scopes: [...scopes], owner: owner ?? "", configured };
	if (key.configured) return common;
	const { createdAt, createdBy, expiresAt, revokedAt, lastUsedAt } = key;
	return {
		...{ ...common, createdBy, createdAt: fromMicroseconds(createdAt) },
		...{ expiresAt: timeOf(expiresAt), revokedAt: timeOf(revokedAt), lastUsedAt: timeOf(lastUsedAt) },
	};
}

/** Returns which conversations the request means, in parts that are assigned one after the other. */
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

/** @throws ServiceError `permission_denied` for a caller with an owner, which sees only a part */
function requireNoOwner({ name, owner }: Principal, act: string): void {
	if (owner !== undefined)
		throw new ServiceError("permission_denied", `A key with an owner cannot ${act}`, { caller: name });
}

function forwardingMethods(endpoints: Endpoints, { updates }: Pick<Store, "updates">): readonly RpcMethod[] {
	const { method } = ForwardingService;
	const shown = async (endpoint: ListedEndpoint) => ({
		endpoint: toEndpoint(endpoint, (await updates.range()).newest),
	});
	return [
		unary(method.createEndpoint, async (request, caller) => {
			const { endpoint, secret } = await endpoints.create(request, caller);
			return { ...(await shown(endpoint)), secret };
		}),
		unary(method.listEndpoints, async (_, caller) => {
			const { newest } = await updates.range();
			return { endpoints: (await endpoints.list(caller)).map((endpoint) => toEndpoint(endpoint, newest)) };
		}),
		unary(method.getEndpoint, async (request, caller) => await shown(await endpoints.get(request, caller))),
		unary(method.updateEndpoint, async (request, caller) => {
			const { url, changes, filter, form, include, updateMask } = request;
			const given = {
				...{ url: url !== "", changes: changes.length > 0, filter: filter !== undefined },
				...{ form: form !== "", include: include.length > 0 },
			};
			const fields = updateMask?.paths ?? Object.entries(given).flatMap(([name, isGiven]) => (isGiven ? [name] : []));
			return await shown(await endpoints.update(request, fields, caller));
		}),
		unary(method.deleteEndpoint, async (request, caller) => {
			await endpoints.delete(request, caller);
			return {};
		}),
		unary(method.pauseEndpoint, async (request, caller) => await shown(await endpoints.pause(request, caller))),
		unary(method.resumeEndpoint, async (request, caller) => {
			const { from } = request;
			if (ResumeFrom[from] === undefined) throw invalid("from", "is not a known place");
			const place = from === ResumeFrom.NOW ? "now" : "position";
			return await shown(await endpoints.resume(request, place, caller));
		}),
		unary(method.testEndpoint, async (request, caller) => {
			const one = await endpoints.test(request, caller);
			return { success: one.error === "", try: toTry(one) };
		}),
		unary(method.rotateEndpointSecret, async (request, caller) => ({
			secret: await endpoints.rotate(request, caller),
		})),
		unary(method.replayEndpoint, async (request, caller) => ({
			deliveries: BigInt(await endpoints.replay(request, request, caller)),
		})),
		unary(method.listDeliveries, async (request, caller) => {
			const { name, owner, state, pageToken } = request;
			const known = deliveryStates.find((one) => DELIVERY_STATES.get(one) === state);
			if (known === undefined && state !== DeliveryState.UNSPECIFIED) throw invalid("state", "is not a known state");
			const scope = { name, owner, state };
			const [before] = readPageToken("Deliveries", scope, pageToken);
			const limit = pageSize(request.pageSize);
			const rows = await endpoints.deliveries(request, { state: known, before, limit: limit + 1 }, caller);
			const page = rows.slice(0, limit);
			const last = page.at(-1);
			const hasMore = rows.length > limit && last !== undefined;
			return {
				deliveries: page.map(toDelivery),
				nextPageToken: hasMore ? writePageToken("Deliveries", scope, last.number) : "",
			};
		}),
		unary(method.retryDelivery, async (request, caller) => ({
			delivery: toDelivery(await endpoints.retry(request, request.id, caller)),
		})),
	];
}

function toEndpoint(row: ListedEndpoint, newest: bigint): MessageInitShape<typeof EndpointSchema> {
	const { name, owner, url, changes, form, include, reason, position, lost, createdBy, waiting } = row;
	return {
		...{ name, owner, url, changes: [...changes], form, include: [...include], reason, position, lost, createdBy },
		filter: filterOf(row),
		state: STATES.get(row.state) ?? 0,
		lag: newest > position ? newest - position : 0n,
		waiting: BigInt(waiting),
		lastSuccessAt: timeOf(row.lastSuccessAt),
		failingSince: timeOf(row.failingSince),
		createdAt: timeOf(row.createdAt),
	};
}

function toDelivery(row: DeliveryRow): MessageInitShape<typeof DeliverySchema> {
	const { id, change, conversationId, sequence = 0n } = row;
	return {
		...{ id, change, conversationId, sequence, state: DELIVERY_STATES.get(row.state) ?? 0 },
		createdAt: timeOf(row.createdAt),
		nextTryAt: timeOf(row.nextAt),
		tries: row.tries.map(toTry),
	};
}

function toTry({ at, duration, status, error, answer }: Try): MessageInitShape<typeof DeliveryTrySchema> {
	return { at: timeOf(BigInt(at) * 1000n), durationMs: BigInt(Math.round(duration)), status, error, answer };
}

/** Returns a time of the store, in microseconds, as a timestamp. */
function timeOf(time: bigint | undefined): Timestamp | undefined {
	return time === undefined ? undefined : fromMicroseconds(time);
}
