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
/** Number of looks after which budgets are compared although nothing has changed. */
const IDLE_LOOKS = 15;
/** Milliseconds for which a process compares budgets without renewing its claim. */
const CLAIM = 60_000;
/** Number of past periods in which late events are noticed. */
const PAST = 31;
/** Number of sequences of a log of which the conversations are compared together. */
const STEP = 2_000n;
const CONVERSATIONS = 1_000;
/** Number of conversations that are paused together, those with the largest cost. */
const PAUSED = 1_000;

export interface BudgetFollowerOptions {
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
 * Compares budgets with what is spent, after updates and events were stored, and tells endpoints of thresholds, until the
 * signal fires. Of several processes with one database, one does it.
 */
export async function followBudgets(options: BudgetFollowerOptions, stopping: AbortSignal): Promise<void> {
	const { store, reads, notices, pauses, clock, holder, onError, look: pause = LOOK } = options;
	const claim = (milliseconds: number) => claimFor(store, "budgets", holder, milliseconds);
	let before = "";
	let due = 0;
	while (!stopping.aborted) {
		const began = performance.now();
		await look().catch(onError);
		await clock.wait(Math.max(pause, (performance.now() - began) * PAUSE_FACTOR), stopping);
	}
	// So another process need not wait.
	await claim(0).catch(() => undefined);

	async function look(): Promise<void> {
		const budgets = await store.tables.read.listBudgets({ owner: undefined });
		const [updates, events] = await Promise.all([store.updates.range(), store.events.range()]);
		const newest = { updates: updates.newest, events: events.newest };
		const present = [...Object.values(newest), ...budgets.flatMap(({ id, settings }) => [id, settings])].join();
		// Rules apply also to what does nothing.
		if (present === before && performance.now() < due) return;
		if (budgets.length > 0 && !(await claim(CLAIM))) return;
		[before, due] = [present, performance.now() + pause * IDLE_LOOKS];
		for (const budget of budgets) {
			if (stopping.aborted) return;
			const rule = ruleOf(settingsOf(budget));
			if (rule !== undefined) await apply(budget, rule).catch(onError);
			else if (budget.updates !== newest.updates || budget.events !== newest.events)
				await compare(budget, newest).catch(onError);
		}
	}

	async function apply(budget: BudgetRow, rule: Rule): Promise<void> {
		const settings = settingsOf(budget);
		for (const { conversationId, occasion, text } of await foundBy(store, settings, rule, clock.now())) {
			const about = [budget.id, rule, String(settings[rule]), conversationId, occasion];
			const owner = budget.owner === "" ? undefined : budget.owner;
			const data = { rule: { name: budget.name, owner: budget.owner, kind: rule.replace(/[A-Z].*/, "") } };
			await notices.tell({ change: "SILENT", about, conversationId, owner, text: `${text} (${budget.name})`, data });
		}
	}

	/** Compares a budget with what is spent since it was compared last. */
	async function compare(budget: BudgetRow, newest: NewestSequences): Promise<void> {
		const { moveBudget } = store.tables.write;
		const settings = settingsOf(budget);
		const from = firstPeriod(budget, settings);
		if (!settings.eachConversation) {
			const query = { from, to: undefined, byConversation: false };
			let isDone = true;
			for (const spent of await spentOf(reads, settings, query))
				isDone = (await judge(budget, settings, spent)) && isDone;
			// What could not be paused is tried again.
			if (isDone) await moveBudget({ id: budget.id, ...newest });
			return;
		}
		let isDone = true;
		let after: NewestSequences = { updates: budget.updates, events: budget.events };
		while ((after.updates !== newest.updates || after.events !== newest.events) && !stopping.aborted) {
			const through = { updates: upTo(after.updates, newest.updates), events: upTo(after.events, newest.events) };
			const ids = await store.tables.read.listChanged({ after, through });
			for (let n = 0; n < ids.length; n += CONVERSATIONS)
				isDone = (await compareAll(budget, settings, from, ids.slice(n, n + CONVERSATIONS))) && isDone;
			if (isDone) await moveBudget({ id: budget.id, ...through });
			after = through;
			if (!(await claim(CLAIM))) return;
		}
	}

	/** Compares a budget with what conversations have spent. Returns whether nothing is to be tried again. */
	async function compareAll(
		budget: BudgetRow,
		settings: Settings,
		from: number | undefined,
		ids: readonly string[],
	): Promise<boolean> {
		let found: readonly Spent[];
		try {
			found = await spentOf(reads, settings, { from, to: undefined, byConversation: true, ids });
		} catch (error) {
			// The report has too many rows.
			if (ids.length === 1 || !(error instanceof ServiceError && error.kind === "invalid_argument")) throw error;
			const half = Math.ceil(ids.length / 2);
			const first = await compareAll(budget, settings, from, ids.slice(0, half));
			return (await compareAll(budget, settings, from, ids.slice(half))) && first;
		}
		let isDone = true;
		for (const spent of found) isDone = (await judge(budget, settings, spent)) && isDone;
		return isDone;
	}

	/** Returns the start of the first period that is compared: none that had ended when the budget was created. */
	function firstPeriod(budget: BudgetRow, settings: Settings): number | undefined {
		if (stepOf(settings) === undefined) return undefined;
		const created = spanAt(settings, Number(budget.createdAt / 1000n))?.start ?? 0;
		let start = spanAt(settings, clock.now())?.start ?? 0;
		for (let n = 0; n < PAST && start > created; n++) start = spanAt(settings, start - 1)?.start ?? 0;
		return start;
	}

	/** Tells which thresholds are reached, and pauses what is to be paused. Returns whether nothing is to be tried again. */
	async function judge(
		budget: BudgetRow,
		settings: Settings,
		{ start, conversationId, spent }: Spent,
	): Promise<boolean> {
		const limit = limitOf(settings);
		const span = start === undefined ? undefined : spanAt(settings, start);
		const unit = settings.tokens === undefined ? "amount" : "tokens";
		const ofPeriod = [budget.id, unit, String(limit), String(start ?? "")];
		for (const threshold of settings.thresholds) {
			if (!isReached(spent, limit, threshold)) continue;
			const about = [...ofPeriod, String(threshold), conversationId];
			await notices.tell({
				...{ change: "BUDGET", about, conversationId, owner: budget.owner === "" ? undefined : budget.owner },
				...wordsOf(budget.name, settings, span, threshold, spent, clock.now()),
			});
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
