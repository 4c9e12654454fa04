import type { BudgetRow } from "../store/budgets.ts";
import type { Store } from "../store/store.ts";
import { settingsOf } from "./budgets.ts";
import { ruleOf } from "./rules.ts";
import { shownBudget } from "./shown.ts";
import { limitOf, type UsageReads } from "./spending.ts";

/** Number of budgets whose shares are told, those with the largest ones. */
const MAX_SHARES = 64;
/** Least milliseconds between two readings. */
const INTERVAL = 60_000;
/** A reading is followed by a pause of this multiple of its duration, so that it takes a small part of the machine. */
const PAUSE_FACTOR = 10;

/** How much of a budget is spent. */
export interface BudgetShare {
	readonly name: string;
	/** Empty for none. */
	readonly owner: string;
	/** 1 for all of the amount. */
	readonly share: number;
}

/** Reads how much of the budgets is spent, for metrics. */
export class BudgetShares {
	readonly #store: Pick<Store, "listConversations" | "tables">;
	readonly #reads: UsageReads;
	readonly #now: () => number;
	#last: Promise<readonly BudgetShare[]> | undefined;
	/** When the next reading may begin. */
	#next = 0;

	/** @param now milliseconds since the Unix epoch */
	constructor(store: Pick<Store, "listConversations" | "tables">, reads: UsageReads, now: () => number) {
		this.#store = store;
		this.#reads = reads;
		this.#now = now;
	}

	/** Lets the next call read again, because budgets have changed. */
	forget(): void {
		this.#last = undefined;
	}

	/**
	 * Returns the largest shares of budgets with an amount, as they were at most some minutes ago.
	 *
	 * @throws ServiceError when the store cannot be read
	 */
	async largest(): Promise<readonly BudgetShare[]> {
		const isOld = this.#now() >= this.#next;
		if (this.#last !== undefined && !isOld) return await this.#last;
		this.#next = Number.POSITIVE_INFINITY;
		const began = performance.now();
		const reading = this.#read().finally(() => {
			this.#next = this.#now() + Math.max(INTERVAL, (performance.now() - began) * PAUSE_FACTOR);
		});
		this.#last = reading;
		reading.catch(() => {
			if (this.#last === reading) this.#last = undefined;
		});
		return await reading;
	}

	async #read(): Promise<readonly BudgetShare[]> {
		const rows = await this.#store.tables.read.listBudgets({ owner: undefined });
		const shares: BudgetShare[] = [];
		for (const row of rows) if (ruleOf(settingsOf(row)) === undefined) shares.push(await this.#shareOf(row));
		return shares.toSorted((a, b) => b.share - a.share).slice(0, MAX_SHARES);
	}

	async #shareOf(row: BudgetRow): Promise<BudgetShare> {
		const { spent = 0 } = await shownBudget(this.#store, this.#reads, row, false, this.#now());
		// Costs are whole numbers of 10^-9.
		const share = Math.round(spent * 1e9) / Math.round(limitOf(settingsOf(row)) * 1e9);
		return { name: row.name, owner: row.owner, share };
	}
}
