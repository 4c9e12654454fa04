import { create, type Message } from "@bufbuild/protobuf";
import type { ConversationInfo } from "../../../gen/conversations/v1/conversation_pb.js";
import {
	type ConversationEntry,
	type ConversationFilter,
	ConversationOrder,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { invalid } from "../../errors.ts";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import { type Condition, isCountedFast, type ListOrder } from "../../store/condition.ts";
import type { ConversationQuery, StoredConversation } from "../../store/conversation-lists.ts";
import { isSequence } from "../../store/head.ts";
import type { Store } from "../../store/store.ts";
import { scoreValue } from "../scores.ts";
import { conditionsOf, scoreName } from "./filter.ts";
import { type ListScope, MAX_PAGE_BYTES, type PageRequest, pageSize, readPageToken, writePageToken } from "./page.ts";
import { decodeSummary, type RecordOpening, recordSize, storedRecord, tryRead } from "./records.ts";

export interface ListRequest extends PageRequest {
	readonly filter?: ConversationFilter | undefined;
	/** UNSPECIFIED means the same as undefined: the newest current update first. */
	readonly orderBy?: ConversationOrder | undefined;
	/** Name of the score by which the order SCORE orders. */
	readonly orderScore?: string;
	/** Names of the scores that entries show. */
	readonly scoreNames?: readonly string[];
	readonly full: boolean;
	readonly secrets: SecretsForm;
}

export interface ListedConversation extends Omit<ConversationEntry, keyof Message | "conversation"> {
	readonly summary: ConversationSummary;
	readonly conversation: ConversationInfo | undefined;
}

/** See `ListConversationsResponse`. */
export interface ConversationPage {
	readonly conversations: readonly ListedConversation[];
	readonly nextPageToken: string;
	readonly totalSize: bigint | undefined;
}

const LIST = "conversations";
/** Number of conversations in the first read of whole records. The sizes of these records determine the next number. */
const FIRST_READ = 8;
/** Maximum number of conversations that the store returns at once. */
const MAX_READ = 1000;

/** Maximum number of scores that a list shows. */
const MAX_SCORE_NAMES = 16;

type ListedStore = Pick<Store, "listConversations" | "countConversations" | "listScoreValues">;

/**
 * Lists conversations. The page ends before its entries exceed {@link MAX_PAGE_BYTES}, but has at least one if there is one.
 * Throws `invalid_argument` that names the field.
 */
export async function listConversations(
	store: ListedStore,
	opening: RecordOpening,
	request: ListRequest,
): Promise<ConversationPage> {
	const { pageToken, full, secrets } = request;
	const size = pageSize(request.pageSize);
	const conditions = conditionsOf(request.filter);
	const order = orderOf(request.orderBy);
	const orderScore = order === "score" ? scoreName(request.orderScore ?? "", "order_score") : undefined;
	const names = scoreNamesOf(request.scoreNames);
	const scope = { conditions, orderScore, ...(order === "updated" ? {} : { order }) };
	const start = pageToken === "" ? undefined : startOf(order, scope, pageToken);
	const { found, more } = await readPage(store, { conditions, order, orderScore, withRecords: full }, start, size);
	const last = found.at(-1);
	const nextPageToken = more && last !== undefined ? writePageToken(LIST, scope, ...positionOf(last)) : "";
	const conversationIds = found.map(({ conversationId }) => conversationId);
	const values = names.length === 0 ? [] : await store.listScoreValues({ conversationIds, names });
	const valuesOf = Map.groupBy(values, ({ conversationId }) => conversationId);
	const conversations = found.map((stored) => {
		const shown = valuesOf.get(stored.conversationId) ?? [];
		const scores = Object.fromEntries(shown.map((one) => [one.name, scoreValue(one)]));
		return { ...entryOf(opening, stored, full ? secrets : undefined), scores };
	});
	const totalSize =
		pageToken === "" ? await totalSizeOf(store, conditions, more ? undefined : found.length) : undefined;
	return { conversations, nextPageToken, totalSize };
}

/** @param all number of all that the first page has; undefined if there are more */
async function totalSizeOf(
	store: ListedStore,
	conditions: readonly Condition[],
	all: number | undefined,
): Promise<bigint | undefined> {
	if (all !== undefined) return BigInt(all);
	if (!isCountedFast(conditions)) return undefined;
	return BigInt((await store.countConversations({ conditions, group: undefined, limit: 1 })).total);
}

/** @param secrets how secrets are shown in the whole record; undefined for the summary only */
function entryOf(
	opening: RecordOpening,
	stored: StoredConversation,
	secrets: SecretsForm | undefined,
): Omit<ListedConversation, "scores"> {
	const { conversationId } = stored;
	const hasRecord = isSequence(stored.sequence);
	const sequence = hasRecord ? stored.sequence : 0n;
	const entry = tryRead(stored, opening.onUnreadable, () => ({
		summary: decodeSummary(stored.summary),
		conversation:
			hasRecord && secrets !== undefined ? opening.vault.open(storedRecord(stored).bytes, secrets) : undefined,
	}));
	if (entry !== undefined) return { sequence, hasRecord, ...entry, unreadable: false };
	const summary = create(ConversationSummarySchema, { id: conversationId });
	return { sequence, hasRecord, summary, conversation: undefined, unreadable: true };
}

/** Reads a page in portions, so that no more large records than needed are in memory. */
async function readPage(
	store: ListedStore,
	query: Pick<ConversationQuery, "conditions" | "order" | "orderScore" | "withRecords">,
	start: PageStart | undefined,
	size: number,
): Promise<{ found: readonly StoredConversation[]; more: boolean }> {
	const found: StoredConversation[] = [];
	let bytes = 0;
	let portion = query.withRecords ? FIRST_READ : MAX_READ;
	for (;;) {
		// One more than fits on the page, to find out whether another page follows.
		const limit = Math.min(portion, size + 1 - found.length);
		const last = found.at(-1);
		const from = last === undefined ? start : { before: last.sequence, beforeValue: last.orderValue };
		const read = await store.listConversations({ ...query, ...from, limit });
		for (const stored of read) {
			bytes += stored.summary.byteLength + recordSize(stored.record);
			if (found.length === size || (found.length > 0 && bytes > MAX_PAGE_BYTES)) return { found, more: true };
			found.push(stored);
		}
		if (read.length < limit) return { found, more: false };
		const average = bytes / found.length;
		portion = Math.max(1, Math.min(MAX_READ, Math.ceil((MAX_PAGE_BYTES - bytes) / average)));
	}
}

type PageStart = Pick<ConversationQuery, "before" | "beforeValue">;

const ORDERS: ReadonlyMap<ConversationOrder, ListOrder> = new Map([
	[ConversationOrder.UNSPECIFIED, "updated"],
	[ConversationOrder.UPDATED, "updated"],
	[ConversationOrder.ACTIVITY, "activity"],
	[ConversationOrder.CREATED, "created"],
	[ConversationOrder.COST, "cost"],
	[ConversationOrder.TOKENS, "tokens"],
	[ConversationOrder.SCORE, "score"],
]);

function scoreNamesOf(names: readonly string[] = []): readonly string[] {
	if (names.length > MAX_SCORE_NAMES) throw invalid("score_names", `must have at most ${MAX_SCORE_NAMES} entries`);
	return [...new Set(names.map((name) => scoreName(name, "score_names")))];
}

function orderOf(requested: ConversationOrder = ConversationOrder.UNSPECIFIED): ListOrder {
	const order = ORDERS.get(requested);
	if (order === undefined) throw invalid("order_by", "is not a known order");
	return order;
}

function startOf(order: ListOrder, scope: ListScope, token: string): PageStart {
	const position = readPageToken(LIST, scope, token);
	if (order === "updated") return { before: position[0] };
	const [value = 0n, sequence = 0n] = position;
	const [cost] = new Float64Array(BigInt64Array.of(value).buffer);
	return { before: sequence, beforeValue: order === "cost" || order === "score" ? cost : value };
}

/** Returns the position after a conversation. A floating-point number is the integer with the same bits. */
function positionOf({ orderValue, sequence }: StoredConversation): readonly bigint[] {
	if (orderValue === undefined) return [sequence];
	if (typeof orderValue === "bigint") return [orderValue, sequence];
	return [...new BigInt64Array(Float64Array.of(orderValue).buffer), sequence];
}
