import { ServiceError } from "../errors.ts";
import type { Clock } from "../forward/endpoint-worker.ts";
import type { Notices } from "../forward/notices.ts";
import type { BudgetRow } from "../store/budgets.ts";
import type { NewestSequences } from "../store/sequence-log.ts";
import { claimFor } from "../store/session.ts";
import type { Store } from "../store/store.ts";
import { settingsOf } from "./budgets.ts";
import type { Pauses } from "./pauses.ts";
import { forecastOf } from "./shown.ts";
import {
	foundBy,
	isReached,
	limitOf,
	type Rule,
	ruleOf,
	type Settings,
	type Span,
	type Spent,
	spanAt,
	spentOf,
	stepOf,
	type UsageReads,
} from "./spending.ts";

/** Least milliseconds between two looks. */
const LOOK = 2_000;
/** A look is followed by a pause of this multiple of its duration, so that it takes a small part of the machine. */
const PAUSE_FACTOR = 10;
/** Most milliseconds between two looks. */
const LONGEST = 30_000;
/** Milliseconds for which a process compares budgets without renewing its claim. */
const CLAIM = 60_000;
/** Number of past periods in which late events are noticed. */
const PAST = 31;
/** Number of sequences of a log of which the conversations are compared together. */
const STEP = 2_000n;
const CONVERSATIONS = 1_000;
/** Number of conversations that are paused together, those with the largest cost. */
const PAUSED = 1_000;
/** Number of things that were told which are kept in memory. */
const MAX_KNOWN = 100_000;

interface BudgetFollowerOptions {
	readonly store: Pick<Store, "tables" | "updates" | "events" | "claim" | "listConversations">;
	readonly reads: UsageReads;
	readonly notices: Pick<Notices, "tell">;
	readonly pauses: Pick<Pauses, "pause">;
	readonly clock: Clock;
	readonly holder: string;
	readonly onError: (error: unknown) => void;
	/** For tests: least milliseconds between two looks. */
	readonly look?: number;
}

/**
 * Compares budgets with what is spent, after updates and events were stored, and tells endpoints of thresholds. Of several
 * processes with one database, one does it.
 */
export class BudgetFollower implements AsyncDisposable {
	readonly #options: BudgetFollowerOptions;
	readonly #stop = new AbortController();
	readonly #unsubscribe: readonly (() => void)[];
	#wake = new AbortController();
	readonly #known = new Set<string>();
	readonly #running: Promise<void>;

	constructor(options: BudgetFollowerOptions) {
		this.#options = options;
		const { updates, events } = options.store;
		this.#unsubscribe = [updates.subscribe(() => this.poke()), events.subscribe(() => this.poke())];
		this.#running = this.#run();
	}

	poke(): void {
		// Each further call would make an error.
		if (!this.#wake.signal.aborted) this.#wake.abort();
	}

	async #run(): Promise<void> {
		const { clock, onError, look = LOOK } = this.#options;
		const { signal } = this.#stop;
		while (!signal.aborted) {
			this.#wake = new AbortController();
			const began = performance.now();
			await this.#look().catch(onError);
			await clock.wait(Math.max(look, (performance.now() - began) * PAUSE_FACTOR), signal);
			if (!this.#wake.signal.aborted) await clock.wait(LONGEST, AbortSignal.any([this.#wake.signal, signal]));
		}
	}

	async #look(): Promise<void> {
		const { store } = this.#options;
		const budgets = await store.tables.read.listBudgets({ owner: undefined });
		if (budgets.length === 0 || !(await this.#claim(CLAIM))) return;
		const [updates, events] = await Promise.all([store.updates.range(), store.events.range()]);
		const newest = { updates: updates.newest, events: events.newest };
		for (const budget of budgets) {
			if (this.#stop.signal.aborted) return;
			const rule = ruleOf(settingsOf(budget));
			if (rule !== undefined) await this.#apply(budget, rule).catch(this.#options.onError);
			else if (budget.updates !== newest.updates || budget.events !== newest.events)
				await this.#compare(budget, newest).catch(this.#options.onError);
		}
	}

	async #apply(budget: BudgetRow, rule: Rule): Promise<void> {
		const { store, notices, clock } = this.#options;
		const settings = settingsOf(budget);
		for (const { conversationId, occasion, text } of await foundBy(store, settings, rule, clock.now())) {
			const about = [budget.id, rule, String(settings[rule]), conversationId, occasion];
			const owner = budget.owner === "" ? undefined : budget.owner;
			const data = { rule: { name: budget.name, owner: budget.owner, kind: rule.replace(/[A-Z].*/, "") } };
			await this.#once(about, () =>
				notices.tell({ change: "SILENT", about, conversationId, owner, text: `${text} (${budget.name})`, data }),
			);
		}
	}

	/** Compares a budget with what is spent since it was compared last. */
	async #compare(budget: BudgetRow, newest: NewestSequences): Promise<void> {
		const { moveBudget } = this.#options.store.tables.write;
		const settings = settingsOf(budget);
		const from = this.#firstPeriod(budget, settings);
		if (!settings.eachConversation) {
			const query = { from, to: undefined, byConversation: false };
			let isDone = true;
			for (const spent of await spentOf(this.#options.reads, settings, query))
				isDone = (await this.#judge(budget, settings, spent)) && isDone;
			// What could not be paused is tried again.
			if (isDone) await moveBudget({ id: budget.id, ...newest });
			return;
		}
		let isDone = true;
		let after: NewestSequences = { updates: budget.updates, events: budget.events };
		while ((after.updates !== newest.updates || after.events !== newest.events) && !this.#stop.signal.aborted) {
			const through = { updates: upTo(after.updates, newest.updates), events: upTo(after.events, newest.events) };
			const ids = await this.#options.store.tables.read.listChanged({ after, through });
			for (let n = 0; n < ids.length; n += CONVERSATIONS)
				isDone = (await this.#compareAll(budget, settings, from, ids.slice(n, n + CONVERSATIONS))) && isDone;
			if (isDone) await moveBudget({ id: budget.id, ...through });
			after = through;
			if (!(await this.#claim(CLAIM))) return;
		}
	}

	/** Compares a budget with what conversations have spent. Returns whether nothing is to be tried again. */
	async #compareAll(
		budget: BudgetRow,
		settings: Settings,
		from: number | undefined,
		ids: readonly string[],
	): Promise<boolean> {
		let found: readonly Spent[];
		try {
			found = await spentOf(this.#options.reads, settings, { from, to: undefined, byConversation: true, ids });
		} catch (error) {
			// The report has too many rows.
			if (ids.length === 1 || !(error instanceof ServiceError && error.kind === "invalid_argument")) throw error;
			const half = Math.ceil(ids.length / 2);
			const first = await this.#compareAll(budget, settings, from, ids.slice(0, half));
			return (await this.#compareAll(budget, settings, from, ids.slice(half))) && first;
		}
		let isDone = true;
		for (const spent of found) isDone = (await this.#judge(budget, settings, spent)) && isDone;
		return isDone;
	}

	/** Returns the start of the first period that is compared: none that had ended when the budget was created. */
	#firstPeriod(budget: BudgetRow, settings: Settings): number | undefined {
		if (stepOf(settings) === undefined) return undefined;
		const created = spanAt(settings, Number(budget.createdAt / 1000n))?.start ?? 0;
		let start = spanAt(settings, this.#options.clock.now())?.start ?? 0;
		for (let n = 0; n < PAST && start > created; n++) start = spanAt(settings, start - 1)?.start ?? 0;
		return start;
	}

	/** Tells which thresholds are reached, and pauses what is to be paused. Returns whether nothing is to be tried again. */
	async #judge(budget: BudgetRow, settings: Settings, { start, conversationId, spent }: Spent): Promise<boolean> {
		const { notices, reads, pauses, clock } = this.#options;
		const limit = limitOf(settings);
		const span = start === undefined ? undefined : spanAt(settings, start);
		const unit = settings.tokens === undefined ? "amount" : "tokens";
		const ofPeriod = [budget.id, unit, String(limit), String(start ?? "")];
		for (const threshold of settings.thresholds) {
			if (!isReached(spent, limit, threshold)) continue;
			const about = [...ofPeriod, String(threshold), conversationId];
			await this.#once(about, () =>
				notices.tell({
					...{ change: "BUDGET", about, conversationId, owner: budget.owner === "" ? undefined : budget.owner },
					...wordsOf(budget.name, settings, span, threshold, spent, clock.now()),
				}),
			);
		}
		const isPast = span !== undefined && span.end <= clock.now();
		if (!settings.pause || isPast || !isReached(spent, limit, 1)) return true;
		const counted = settings.eachConversation
			? [conversationId]
			: (await spentOf(reads, settings, { from: span?.start, to: span?.end, byConversation: true, top: PAUSED })).map(
					(one) => one.conversationId,
				);
		const ids = counted.filter((id) => id !== "");
		return ids.length === 0 || !(await pauses.pause(budget, ofPeriod, ids));
	}

	async #once(about: readonly string[], tell: () => Promise<unknown>): Promise<void> {
		const key = JSON.stringify(about);
		if (this.#known.has(key)) return;
		await tell();
		if (this.#known.size >= MAX_KNOWN) this.#known.clear();
		this.#known.add(key);
	}

	#claim(milliseconds: number): Promise<boolean> {
		const { store, holder } = this.#options;
		return claimFor(store, "budgets", holder, milliseconds);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		for (const unsubscribe of this.#unsubscribe) unsubscribe();
		this.#stop.abort();
		await this.#running;
		// So another process need not wait.
		await this.#claim(0).catch(() => undefined);
	}
}

/** Returns the sequence up to which a step goes. A log that lost its end is behind the position. */
function upTo(after: bigint, newest: bigint): bigint {
	return after + STEP < newest ? after + STEP : newest;
}

function wordsOf(
	name: string,
	settings: Settings,
	span: Span,
	threshold: number,
	spent: number,
	now: number,
): Pick<Parameters<Notices["tell"]>[0], "text" | "data"> {
	const limit = limitOf(settings);
	const unit = settings.tokens === undefined ? "cost" : "tokens";
	const late = span !== undefined && span.end <= now;
	const isoTime = (time: number) => new Date(time).toISOString();
	const amount = (value: number) => (unit === "tokens" ? `${Math.round(value)} tokens` : value.toFixed(2));
	const part = `${Number((threshold * 100).toFixed(2))} %`;
	const when = late ? `, by late events, in the past period from ${isoTime(span.start)}` : "";
	const has = settings.eachConversation ? `has spent ${part} of` : `${part} is spent of`;
	return {
		text: `${has} the budget ${name} (${amount(spent)} of ${amount(limit)})${when}`,
		data: {
			budget: {
				...{ name, owner: settings.owner, unit, limit, threshold, spent, late },
				period_start: span === undefined ? null : isoTime(span.start),
				period_end: span === undefined ? null : isoTime(span.end),
				forecast: span === undefined ? null : late ? spent : forecastOf(spent, span, now),
			},
		},
	};
}
