import { signal } from "@preact/signals";
import { ConversationExecutionStatus as Status } from "../../../../gen/conversations/v1/conversation_pb.js";
import {
	ConversationOrder,
	type ConversationUpdate,
} from "../../../../gen/conversations/v1/conversation_service_pb.js";
import type { ConversationSummary } from "../../../../gen/conversations/v1/summary_pb.js";
import { conditionsOf } from "../../../../src/conversations/read/filter.ts";
import { microsecondsOf, summaryMeets } from "../../../../src/store/condition.ts";
import { conversations, KEY_REFUSED, type Problem, problemOf, reports } from "../../service/service.ts";
import { signOut } from "../../service/session.ts";
import { follow } from "../../service/watch.ts";
import { filterOf, orderOf } from "./filter.ts";

/** A conversation in the list. */
export interface Row {
	readonly sequence: bigint;
	readonly summary: ConversationSummary;
	readonly unreadable: boolean;
	/** Whether an update changed it while the list was open. */
	readonly fresh: boolean;
}

/** Number of conversations that are loaded at a time. */
const PAGE_SIZE = 200;
/** Milliseconds between two counts while updates arrive. */
const COUNT_INTERVAL = 1_000;

/** The live list of one view: its first pages, and the updates since. */
export class ConversationList {
	readonly rows = signal<readonly Row[]>([]);
	/** Number of conversations by status, without the view's own choice of statuses. Undefined until they are known. */
	readonly counts = signal<ReadonlyMap<string, bigint> | undefined>(undefined);
	/** Number of conversations of the view; undefined when it is not known. */
	readonly total = signal<bigint | undefined>(undefined);
	readonly loading = signal(true);
	readonly problem = signal<Problem | undefined>(undefined);
	/** Whether there are more conversations than those that are loaded. */
	readonly more = signal(false);
	readonly #query: URLSearchParams;
	#nextPage = "";
	#stop: (() => void) | undefined;
	#closed = false;
	#counting: ReturnType<typeof setTimeout> | undefined;

	constructor(query: URLSearchParams) {
		this.#query = query;
		void this.#open();
	}

	/** Loads the list again from its beginning. */
	reload(): void {
		this.#stop?.();
		void this.#open();
	}

	async #open(): Promise<void> {
		this.loading.value = true;
		this.problem.value = undefined;
		try {
			// The watch starts before the first page is read, so that no update falls between the two.
			const from = await this.#newestSequence();
			const page = await this.#page("");
			if (this.#closed) return;
			this.rows.value = page.rows;
			this.#nextPage = page.next;
			this.more.value = page.next !== "";
			this.total.value = page.total;
			this.#stop = follow<ConversationUpdate>(
				"conversations",
				from,
				async function* (after, signal) {
					const start = { case: "afterSequence" as const, value: after };
					for await (const message of conversations.watchConversationUpdates({ start }, { signal })) {
						const entry = message.content.case === "update" ? message.content.value : undefined;
						yield { sequence: message.sequence, entry };
					}
				},
				(updates) => this.#apply(updates),
				() => this.reload(),
			);
			await this.#count().catch(() => undefined);
		} catch (error) {
			this.#fail(error);
		} finally {
			this.loading.value = false;
		}
	}

	/** Loads the next page. */
	async loadMore(): Promise<void> {
		if (this.loading.value || !this.more.value) return;
		this.loading.value = true;
		try {
			const page = await this.#page(this.#nextPage);
			const known = new Set(this.rows.value.map(({ summary }) => summary.id));
			this.rows.value = [...this.rows.value, ...page.rows.filter(({ summary }) => !known.has(summary.id))];
			this.#nextPage = page.next;
			this.more.value = page.next !== "";
		} catch (error) {
			this.#fail(error);
		} finally {
			this.loading.value = false;
		}
	}

	close(): void {
		this.#closed = true;
		clearTimeout(this.#counting);
		this.#stop?.();
	}

	#fail(error: unknown): void {
		const problem = problemOf(error);
		if (problem.kind === "key") signOut(KEY_REFUSED);
		this.problem.value = problem;
	}

	/** Returns the sequence of the newest current update. Later ones come by the watch. */
	async #newestSequence(): Promise<bigint> {
		const newest = await conversations.listConversations({ pageSize: 1 });
		return newest.conversations[0]?.sequence ?? 0n;
	}

	async #page(pageToken: string): Promise<{ rows: readonly Row[]; next: string; total: bigint | undefined }> {
		const response = await conversations.listConversations({
			filter: filterOf(this.#query, Date.now()),
			orderBy: orderOf(this.#query),
			pageSize: PAGE_SIZE,
			pageToken,
		});
		const rows = response.conversations.flatMap(({ sequence, summary, unreadable }) =>
			summary === undefined ? [] : [{ sequence, summary, unreadable, fresh: false }],
		);
		return { rows, next: response.nextPageToken, total: response.totalSize };
	}

	/** Puts updates into the list: a conversation that no longer meets the filter leaves it. */
	#apply(updates: readonly ConversationUpdate[]): void {
		const conditions = conditionsOf(filterOf(this.#query, Date.now()));
		const byId = new Map(this.rows.value.map((row) => [row.summary.id, row]));
		for (const { sequence, summary, current, unreadable } of updates) {
			if (summary === undefined || !current) continue;
			byId.delete(summary.id);
			if (summaryMeets(conditions, summary)) byId.set(summary.id, { sequence, summary, unreadable, fresh: true });
		}
		const rank = rankOf(orderOf(this.#query));
		const rows = [...byId.values()].sort((a, b) => compare(rank(b), rank(a)) || compare(b.sequence, a.sequence));
		this.rows.value = rows;
		this.#counting ??= setTimeout(() => {
			this.#counting = undefined;
			void this.#count().catch(() => undefined);
		}, COUNT_INTERVAL);
	}

	async #count(): Promise<void> {
		const filter = filterOf(this.#query, Date.now());
		filter.executionStatus = Status.UNSPECIFIED;
		filter.executionStatuses = [];
		filter.executionStatusesNot = [];
		const { counts } = await reports.countConversations({ groupBy: "status", filter });
		this.counts.value = new Map(counts.map(({ value, count }) => [value, count]));
	}
}

function compare(a: number | bigint, b: number | bigint): number {
	return a < b ? -1 : a > b ? 1 : 0;
}

/** Returns the value by which a list is ordered. */
function rankOf(order: ConversationOrder): (row: Row) => number | bigint {
	switch (order) {
		case ConversationOrder.ACTIVITY:
			return ({ summary }) => microsecondsOf(summary.lastActivityAt ?? summary.updatedAt) ?? 0n;
		case ConversationOrder.CREATED:
			return ({ summary }) => microsecondsOf(summary.createdAt) ?? 0n;
		case ConversationOrder.COST:
			return ({ summary }) => summary.accumulatedCost;
		case ConversationOrder.TOKENS:
			return ({ summary: { tokens } }) => (tokens?.promptTokens ?? 0n) + (tokens?.completionTokens ?? 0n);
		case ConversationOrder.UNSPECIFIED:
		case ConversationOrder.UPDATED:
			return ({ sequence }) => sequence;
	}
}
