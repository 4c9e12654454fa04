import { effect, signal } from "@preact/signals";
import {
	type ConversationEventEntry,
	EventOrder,
} from "../../../../gen/conversations/v1/conversation_event_service_pb.js";
import {
	type ConversationEntry,
	ConversationOrder,
	type ConversationUpdate,
} from "../../../../gen/conversations/v1/conversation_service_pb.js";
import type { ConversationSummary } from "../../../../gen/conversations/v1/summary_pb.js";
import { UpdateChange } from "../../../../gen/conversations/v1/update_pb.js";
import { conditionsOf } from "../../../../src/conversations/read/filter.ts";
import { microsecondsOf, NOT_REPORTED, orderedTokens, summaryMeets } from "../../../../src/store/condition.ts";
import { dayText } from "../../parts/days.ts";
import { scoreNamed } from "../../parts/score.tsx";
import { conversations, events, KEY_REFUSED, type Problem, problemOf, reports } from "../../service/service.ts";
import { accessKey, signOut } from "../../service/session.ts";
import { Throttle } from "../../service/throttle.ts";
import { followEvents, followUpdates } from "../../service/watch.ts";
import { path } from "../../shell/route.ts";
import {
	filterOf,
	gapsQuery,
	isSilentView,
	NOT_FOLLOWED,
	orderOf,
	orderScoreOf,
	scoreColumnsOf,
	silentQuery,
	withoutStatus,
} from "./filter.ts";

/** A conversation in the list. */
export interface Row {
	readonly sequence: bigint;
	readonly summary: ConversationSummary;
	readonly unreadable: boolean;
	/** The scores that the list shows or is ordered by. */
	readonly scores?: ConversationEntry["scores"] | undefined;
	/** Whether it changed while the list was open. */
	readonly fresh: boolean;
}

/** Returns what a conversation is called: its title, else its first message, else its id. */
export function labelOf({ title, firstMessage, id }: ConversationSummary): string {
	return title ?? (firstMessage === undefined ? id : `“${firstMessage}”`);
}

/** Numbers of conversations, as CountConversations returns them. */
export interface Counts {
	/** By status, of conversations that meet all filters but the view's choice of statuses, of silence and of gaps. */
	readonly byStatus: ReadonlyMap<string, bigint>;
	/** Of all statuses. */
	readonly all: bigint;
	/** That run or wait, and are silent. */
	readonly silent: bigint;
	/** Of which something is missing. */
	readonly gaps: bigint;
	/** That the view shows. */
	readonly shown: bigint;
}

/** Number of conversations that are loaded at first, and further ones at a time. */
const FIRST_PAGE = 100;
const PAGE_SIZE = 1_000;
/** Number of conversations up to which a list is kept for who comes back from one of them. */
const MOST_KEPT = 5_000;
/** Number of conversations that are read again at a time after events. */
const MOST_CHANGED = 200;
/** Number of conversations that do not meet the filter whose versions are remembered. */
const MOST_LEFT = 1_000;
/** Milliseconds after which conversations are counted again without a change: silence grows by itself, and scores change. */
const SILENCE_INTERVAL = 30_000;
/** Milliseconds after which a gap no longer closes by itself. Most close with the next events, within half a minute. */
const YOUNG_GAP = 300_000;

/** The live list of one view: its first pages, and what has changed since. */
export class ConversationList {
	readonly rows = signal<readonly Row[]>([]);
	/** Undefined until they are known. */
	readonly counts = signal<Counts | undefined>(undefined);
	readonly loading = signal(true);
	/** Whether the rows are those of the view before, or of the time when the page was left, until they are read anew. */
	readonly stale = signal(false);
	/** The chosen conversation, and its place when a key chose it; undefined if none is. */
	readonly chosen = signal<{ readonly id: string; readonly index: number | undefined } | undefined>(undefined);
	/** Labels of the conversations that a person chose to do something with, by their ids. */
	readonly picked = signal<ReadonlyMap<string, string>>(new Map());
	/** Pixels by which the page was scrolled when it was left. */
	scrolled = 0;
	readonly problem = signal<Problem | undefined>(undefined);
	/** Whether there are more conversations than those that are loaded. */
	readonly more = signal(false);
	readonly #query: URLSearchParams;
	/** Names of the scores that each row needs. */
	readonly #scoreNames: string[];
	/** Whether the view follows from scores, of which no watch tells. */
	readonly #hasScores: boolean;
	#nextPage = "";
	/** Number of conversations that were loaded. */
	#loaded = 0;
	#stops: (() => void)[] = [];
	/** Number of times that the list was opened or closed. What was read for an earlier time is dropped. */
	#times = 0;
	#closed = false;
	readonly #counting = new Throttle(() => this.#readCounts());
	readonly #reading = new Throttle(() => this.#readChanged());
	readonly #reopening = new Throttle(() => this.#reopen());
	#silence: ReturnType<typeof setInterval> | undefined;
	/** Newest versions of conversations that do not meet the filter, the last ones: the watch may bring older ones later. */
	readonly #left = new Map<string, Version>();
	/** Sequence of the newest erasure that the list knows of. */
	#erased = 0n;
	/** Day on which the list was read: what `today` selects changes at midnight. */
	#day = "";
	/** Ids of the conversations to read again. */
	readonly #changed = new Set<string>();

	/** @param before the list of another view, whose rows and counts are shown until those of this one are there */
	constructor(query: URLSearchParams, before?: ConversationList) {
		this.#query = query;
		this.#scoreNames = [...new Set([...scoreColumnsOf(query), orderScoreOf(query)])].filter(Boolean);
		this.#hasScores = this.#scoreNames.length > 0 || filterOf(query, Date.now()).scores.length > 0;
		this.rows.value = before?.rows.value ?? [];
		this.counts.value = before?.counts.value;
		this.stale.value = this.rows.value.length > 0;
		this.#keepTime();
		void this.#open();
	}

	/** Chooses conversations, or no longer does. */
	pick(rows: readonly Row[], isPicked: boolean): void {
		const next = new Map(this.picked.value);
		for (const { summary } of rows) {
			if (isPicked) next.set(summary.id, labelOf(summary));
			else next.delete(summary.id);
		}
		this.picked.value = next;
	}

	/** Loads the list again, as far as it was loaded. */
	reload(): void {
		void this.#reopen();
	}

	/** Goes on with a list that was closed: it shows what it had until it has read it again. */
	resume(): void {
		this.#closed = false;
		this.stale.value = this.rows.value.length > 0;
		this.#keepTime();
		void this.#reopen();
	}

	async #reopen(): Promise<void> {
		this.#stop();
		await this.#open();
	}

	#keepTime(): void {
		clearInterval(this.#silence);
		this.#silence = setInterval(() => void this.#grownOld().catch(() => undefined), SILENCE_INTERVAL);
	}

	/** Loads as many conversations as were loaded before, or the first page. */
	async #open(): Promise<void> {
		this.#times += 1;
		const time = this.#times;
		this.loading.value = true;
		this.#day = dayText(new Date());
		try {
			// The watches start behind what is stored before the first page is read, so that nothing falls in between.
			const [update, event] = await Promise.all([newestUpdate(), newestEvent()]);
			// No current update is as new as an erasure of the newest conversation.
			const known = compare(update, this.#erased) < 0 ? this.#erased : update;
			let page = await this.#page("", FIRST_PAGE);
			const rows = new Map(page.rows.map((row) => [row.summary.id, row]));
			while (rows.size < this.#loaded && page.next !== "" && time === this.#times) {
				page = await this.#page(page.next, PAGE_SIZE);
				for (const row of page.rows) rows.set(row.summary.id, row);
			}
			if (time !== this.#times) return;
			this.problem.value = undefined;
			this.stale.value = false;
			this.rows.value = [...rows.values()];
			this.#loaded = rows.size;
			this.#nextPage = page.next;
			this.more.value = page.next !== "";
			this.#follow(known, event);
			this.#counting.request();
		} catch (error) {
			if (time === this.#times) {
				// Nothing is followed now, so what is shown gets old.
				this.stale.value = this.rows.value.length > 0;
				this.#fail(error);
			}
		} finally {
			if (time === this.#times) this.loading.value = false;
		}
	}

	#follow(update: bigint, event: bigint): void {
		const onLost = (): void => this.reload();
		// Events change summaries without an update.
		const onEntries = (entries: readonly ConversationEventEntry[]): void =>
			this.#readAgain(entries.map(({ conversationId }) => conversationId));
		const follows = [
			followUpdates("", {
				from: update,
				onEntries: (updates) => {
					const erasure = updates.findLast(({ change }) => change === UpdateChange.ERASED);
					if (erasure !== undefined) {
						// Its id is not told, so the list is read again.
						this.#erased = erasure.sequence;
						this.#reopening.request();
					}
					const current = updates.filter((update) => update.current);
					if (this.#hasScores) this.#readAgain(current.flatMap(({ summary }) => summary?.id ?? []));
					else this.#merge(current);
				},
				onLost,
			}),
			followEvents("", NOT_FOLLOWED, { from: event, onEntries, onLost }),
		];
		this.#stops.push(...follows);
	}

	/** Loads the next page. */
	async loadMore(): Promise<void> {
		if (this.loading.value || !this.more.value || this.stale.value) return;
		const time = this.#times;
		this.loading.value = true;
		try {
			const page = await this.#page(this.#nextPage, PAGE_SIZE);
			if (time !== this.#times) return;
			this.problem.value = undefined;
			const known = new Set(this.rows.value.map(({ summary }) => summary.id));
			this.rows.value = [...this.rows.value, ...page.rows.filter(({ summary }) => !known.has(summary.id))];
			this.#loaded = this.rows.value.length;
			this.#nextPage = page.next;
			this.more.value = page.next !== "";
		} catch (error) {
			if (time === this.#times) this.#fail(error);
		} finally {
			if (time === this.#times) this.loading.value = false;
		}
	}

	/** Stops following. {@link resume} goes on. */
	close(): void {
		this.#closed = true;
		this.#times += 1;
		clearInterval(this.#silence);
		this.#stop();
	}

	#stop(): void {
		this.#counting.cancel();
		this.#reading.cancel();
		this.#reopening.cancel();
		for (const stop of this.#stops.splice(0)) stop();
	}

	#fail(error: unknown): void {
		const problem = problemOf(error);
		if (problem.kind === "key") signOut(KEY_REFUSED);
		this.problem.value = problem;
	}

	async #page(pageToken: string, pageSize: number): Promise<{ rows: readonly Row[]; next: string }> {
		const response = await conversations.listConversations({
			filter: filterOf(this.#query, Date.now()),
			orderBy: orderOf(this.#query),
			orderScore: orderScoreOf(this.#query),
			scoreNames: this.#scoreNames,
			pageSize,
			pageToken,
		});
		const rows = response.conversations.flatMap(({ sequence, summary, unreadable, scores }) =>
			summary === undefined ? [] : [{ sequence, summary, unreadable, scores, fresh: false }],
		);
		return { rows, next: response.nextPageToken };
	}

	/** Reads conversations again soon. */
	#readAgain(ids: readonly string[]): void {
		for (const id of ids) this.#changed.add(id);
		this.#reading.request();
	}

	async #readChanged(): Promise<void> {
		const ids = [...this.#changed].slice(0, MOST_CHANGED);
		if (ids.length === 0) return;
		// Before the answer, so that what events change meanwhile is read once more.
		for (const id of ids) this.#changed.delete(id);
		// Without the view's own filter, so that conversations are found that have just left the view.
		try {
			const { scores } = filterOf(this.#query, Date.now());
			const asked = { pageSize: MOST_CHANGED, scoreNames: this.#scoreNames };
			const [{ conversations: changed }, meeting] = await Promise.all([
				conversations.listConversations({ ...asked, filter: { ids } }),
				scores.length === 0 ? undefined : conversations.listConversations({ ...asked, filter: { ids, scores } }),
			]);
			const met = meeting && new Set(meeting.conversations.map(({ summary }) => summary?.id));
			if (!this.#closed) this.#merge(changed, ({ id }) => met?.has(id) ?? true);
		} catch (error) {
			for (const id of ids) this.#changed.add(id);
			throw error;
		}
		if (this.#changed.size > 0 && !this.#closed) this.#reading.request();
	}

	/**
	 * Puts changed conversations in their places. One that no longer meets the filter leaves the list.
	 *
	 * @param meetsScores whether a conversation meets the conditions on scores, of which its summary does not tell
	 */
	#merge(
		changed: readonly (Pick<ConversationUpdate, "sequence" | "summary" | "unreadable"> & Pick<Row, "scores">)[],
		meetsScores: (summary: ConversationSummary) => boolean = () => true,
	): void {
		const conditions = conditionsOf(filterOf(this.#query, Date.now())).filter(({ kind }) => kind !== "score");
		const present = this.rows.value;
		const last = present.at(-1);
		const newest = new Map<string, Row>();
		for (const { sequence, summary, unreadable, scores } of changed) {
			const known = summary && newest.get(summary.id);
			if (summary === undefined || (known !== undefined && isNewer(known, { sequence, summary }))) continue;
			const left = this.#left.get(summary.id);
			if (left !== undefined && isNewer(left, { sequence, summary })) continue;
			newest.set(summary.id, { sequence, summary, unreadable, scores, fresh: true });
		}
		const rows: Row[] = [];
		for (const row of present) {
			const next = newest.get(row.summary.id);
			if (next === undefined) rows.push(row);
			else if (isNewer(row, next) || isSame(row, next)) {
				rows.push(row);
				newest.delete(row.summary.id);
			}
		}
		if (newest.size === 0) return;
		const rank = rankOf(this.#query);
		const before = (a: Row, b: Row): number => compare(rank(b) ?? 0, rank(a) ?? 0) || compare(b.sequence, a.sequence);
		for (const row of newest.values()) {
			this.#left.delete(row.summary.id);
			if (!summaryMeets(conditions, row.summary) || !meetsScores(row.summary) || rank(row) === undefined) {
				const { eventCount } = row.summary;
				this.#left.set(row.summary.id, { sequence: row.sequence, summary: { eventCount } });
				continue;
			}
			// Behind the last row it comes with a page that is not loaded yet.
			if (this.more.value && last !== undefined && before(last, row) < 0) continue;
			let [low, high] = [0, rows.length];
			while (low < high) {
				const middle = (low + high) >> 1;
				const other = rows[middle];
				if (other !== undefined && before(other, row) < 0) low = middle + 1;
				else high = middle;
			}
			rows.splice(low, 0, row);
		}
		for (const id of this.#left.keys()) {
			if (this.#left.size <= MOST_LEFT) break;
			this.#left.delete(id);
		}
		this.rows.value = rows;
		this.#counting.request();
	}

	/** Shows what no watch tells: which conversations have become silent, whose young gaps have closed, and scores. */
	async #grownOld(): Promise<void> {
		if (document.hidden) return;
		if (this.#day !== dayText(new Date())) this.reload();
		if (this.#hasScores) this.#reopening.request();
		this.#readYoungGaps();
		this.#counting.request();
		if (isSilentView(this.#query)) this.#merge((await this.#page("", FIRST_PAGE)).rows);
	}

	/** Reads conversations again whose gaps may have closed by events that the list does not follow. */
	#readYoungGaps(): void {
		for (const { summary } of this.rows.value) {
			const since = microsecondsOf(summary.gaps?.since);
			if (since === undefined || since < BigInt(Date.now() - YOUNG_GAP) * 1000n) continue;
			this.#changed.add(summary.id);
		}
		if (this.#changed.size > 0) this.#reading.request();
	}

	async #readCounts(): Promise<void> {
		const now = Date.now();
		const query = withoutStatus(this.#query);
		const isLimited = query.toString() !== this.#query.toString();
		const [{ counts, total: all }, { total: silent }, { total: gaps }, limited] = await Promise.all([
			reports.countConversations({ groupBy: "status", filter: filterOf(query, now) }),
			reports.countConversations({ filter: filterOf(silentQuery(query), now) }),
			reports.countConversations({ filter: filterOf(gapsQuery(query), now) }),
			isLimited ? reports.countConversations({ filter: filterOf(this.#query, now) }) : undefined,
		]);
		if (this.#closed) return;
		const byStatus = new Map(counts.map(({ value, count }) => [value, count]));
		this.counts.value = { byStatus, all, silent, gaps, shown: limited?.total ?? all };
	}
}

/** The list that was shown last, so that a person who comes back from a conversation finds it as it was. */
let last: { readonly parameters: string; readonly list: ConversationList } | undefined;

function forget(): void {
	last?.list.close();
	last = undefined;
}

// Another key may see other conversations.
accessKey.subscribe(forget);
effect(() => {
	const [page = "conversations", id] = path.value;
	if (page !== "conversations") forget();
	else if (id !== undefined && last !== undefined) last.list.chosen.value = { id, index: undefined };
});

/**
 * Returns the list of a view: the one that was shown last if it is the same view, or a new one.
 *
 * @param parameters parameters of the address
 */
export function listOf(parameters: string): ConversationList {
	if (last?.parameters === parameters && last.list.rows.value.length <= MOST_KEPT) last.list.resume();
	else last = { parameters, list: new ConversationList(new URLSearchParams(parameters), last?.list) };
	return last.list;
}

/** Returns the sequence of the newest current update. Later ones come by the watch. */
async function newestUpdate(): Promise<bigint> {
	const newest = await conversations.listConversations({ pageSize: 1 });
	return newest.conversations[0]?.sequence ?? 0n;
}

/** Returns the sequence of the newest event. */
async function newestEvent(): Promise<bigint> {
	const newest = await events.listConversationEvents({ order: EventOrder.NEWEST_FIRST, pageSize: 1 });
	return newest.events[0]?.sequence ?? 0n;
}

type Version = Pick<Row, "sequence"> & { readonly summary: Pick<ConversationSummary, "eventCount"> };

/** Whether a version of a conversation is newer than another one: by its update, or by events since. */
function isNewer(a: Version, b: Version): boolean {
	return (compare(a.sequence, b.sequence) || compare(a.summary.eventCount, b.summary.eventCount)) > 0;
}

function isSame(a: Version, b: Version): boolean {
	return a.sequence === b.sequence && a.summary.eventCount === b.summary.eventCount;
}

function compare(a: number | bigint, b: number | bigint): number {
	return a < b ? -1 : a > b ? 1 : 0;
}

/** Returns the value by which a list is ordered; undefined for a conversation that the order leaves out. */
function rankOf(query: URLSearchParams): (row: Row) => number | bigint | undefined {
	switch (orderOf(query)) {
		case ConversationOrder.ACTIVITY:
			return ({ summary }) => microsecondsOf(summary.lastActivityAt ?? summary.updatedAt) ?? 0n;
		case ConversationOrder.CREATED:
			return ({ summary }) => microsecondsOf(summary.createdAt) ?? 0n;
		case ConversationOrder.COST:
			return ({ summary }) => summary.accumulatedCost ?? NOT_REPORTED;
		case ConversationOrder.TOKENS:
			return ({ summary }) => orderedTokens(summary.tokens);
		case ConversationOrder.SCORE: {
			const name = orderScoreOf(query);
			return ({ scores }) => {
				const value = scoreNamed(scores, name);
				return value === undefined || typeof value === "string" ? undefined : Number(value);
			};
		}
		case ConversationOrder.UNSPECIFIED:
		case ConversationOrder.UPDATED:
			return ({ sequence }) => sequence;
	}
}
