import { randomBytes } from "node:crypto";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { BudgetPeriod, BudgetSchema } from "../../gen/conversations/v1/budget_service_pb.js";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { authorize, type Principal } from "../access/keys.ts";
import { type Named, NamedRows } from "../access/named.ts";
import { conditionsOnUpdates, uuid, wellFormed } from "../conversations/read/filter.ts";
import { invalid } from "../errors.ts";
import type { BudgetRow } from "../store/budgets.ts";
import type { Store } from "../store/store.ts";
import { timeZone } from "../usage/periods.ts";
import { FIELDS, type Field, RULES, ruleOf, type Settings } from "./spending.ts";

const MAX_THRESHOLDS = 16;
const MAX_THRESHOLD = 100;
const MAX_NAME = 1024;
const MAX_MINUTES = 100_000;
const DEFAULT_THRESHOLDS = [0.5, 0.8, 1];

/** The fields of which exactly one is set. */
const LIMITS = ["amount", "tokens", ...RULES] as const;
const LARGEST = {
	...{ amount: 1e9, tokens: 1e15, stalledEvents: 10_000 },
	...{ silentMinutes: MAX_MINUTES, waitingMinutes: MAX_MINUTES, gapMinutes: MAX_MINUTES, stuck: 1 },
};

/** What a caller says about a budget. What is left out keeps its value, or gets the default of a new budget. */
export type AskedBudget = { readonly [Name in keyof Settings]?: Settings[Name] | undefined };

interface BudgetsOptions {
	readonly store: Pick<Store, "tables" | "updates" | "events">;
	readonly now: () => number;
}

/** What callers do with budgets. A caller with an owner has those of its owner only. */
export class Budgets extends NamedRows<BudgetRow> {
	readonly #options: BudgetsOptions;
	readonly #write: Store["tables"]["write"];

	constructor(options: BudgetsOptions) {
		const { read, write } = options.store.tables;
		super({ kind: "budget", list: (query) => read.listBudgets(query) });
		this.#options = options;
		this.#write = write;
	}

	/** @throws ServiceError `invalid_argument`, `already_exists`, `failed_precondition` or `permission_denied` */
	async create(named: Named, asked: AskedBudget, caller: Principal): Promise<BudgetRow> {
		const owner = await this.ownerOfNew(named, caller);
		const settings = judged(
			merged(DEFAULTS, asked, (name) => isGiven(asked, name)),
			owner,
		);
		if (settings.pause) authorize(caller, "pause");
		const row: BudgetRow = {
			...{ id: randomBytes(9).toString("hex"), name: named.name, owner, settings: bytesOf(settings) },
			...(await this.#positionOf(settings)),
			...{ createdAt: BigInt(Math.round(this.#options.now())) * 1000n, createdBy: caller.name },
		};
		const isNew = await this.change("budget.created", caller, named.name, settings.pause ? "pause" : "", (audit) =>
			this.#write.createBudget({ of: row, audit }),
		);
		if (!isNew) throw this.taken(named.name);
		return row;
	}

	/**
	 * Changes settings.
	 *
	 * @param paths names of the fields in the API that are changed; undefined for those that have a value
	 * @throws ServiceError `not_found`, `invalid_argument` or `permission_denied`
	 */
	async update(named: Named, asked: AskedBudget, paths: readonly string[] | undefined, caller: Principal) {
		const row = await this.get(named, caller);
		const known = FIELDS.map((name) => BudgetSchema.field[name].name);
		if (paths?.some((path) => !known.includes(path)))
			throw invalid("update_mask", "has a field that cannot be changed");
		const isChanged = (name: Field) => paths?.includes(BudgetSchema.field[name].name) ?? isGiven(asked, name);
		const settings = judged(merged(settingsOf(row), asked, isChanged), row.owner);
		const changed = FIELDS.filter(isChanged).map((name) => BudgetSchema.field[name].name);
		if (settings.pause) authorize(caller, "pause");
		const of = { id: row.id, settings: bytesOf(settings), ...(await this.#positionOf(settings)) };
		await this.change("budget.changed", caller, row.name, changed.join(), (audit) =>
			this.#write.changeBudget({ of, audit }),
		);
		return await this.get(named, caller);
	}

	async delete(named: Named, caller: Principal): Promise<void> {
		const { id, name } = await this.get(named, caller);
		await this.change("budget.deleted", caller, name, "", (audit) => this.#write.deleteBudget({ of: id, audit }));
	}

	/**
	 * Returns where a new or changed budget begins to be compared: at once with all that is spent, or with each conversation
	 * when something of it arrives.
	 */
	async #positionOf({ eachConversation }: Settings): Promise<Pick<BudgetRow, "updates" | "events">> {
		if (!eachConversation) return { updates: 0n, events: 0n };
		const { store } = this.#options;
		const [updates, events] = await Promise.all([store.updates.range(), store.events.range()]);
		return { updates: updates.newest, events: events.newest };
	}
}

/** Returns what a caller decided about a budget. */
export function settingsOf({ settings }: Pick<BudgetRow, "settings">): Settings {
	return merged(fromBinary(BudgetSchema, settings), {}, () => false);
}

const DEFAULTS: Settings = create(BudgetSchema, { period: BudgetPeriod.MONTH });

/** Whether a field has a value that is no default of protobuf. */
function isGiven(asked: AskedBudget, name: Field): boolean {
	const value = asked[name];
	if (name === "period") return value !== undefined && value !== BudgetPeriod.UNSPECIFIED;
	return value !== undefined && value !== "" && !(Array.isArray(value) && value.length === 0);
}

/** Returns settings with the changed fields of others. Amounts and rules take the place of each other. */
function merged(base: Settings, asked: AskedBudget, isChanged: (name: Field) => boolean): Settings {
	const of = <Name extends Field>(name: Name): Settings[Name] =>
		isChanged(name) ? (isGiven(asked, name) ? (asked[name] ?? DEFAULTS[name]) : DEFAULTS[name]) : base[name];
	const keepsLimit = !LIMITS.some((name) => isChanged(name) && asked[name] !== undefined);
	const limits = LIMITS.flatMap((name) => {
		const value = keepsLimit ? base[name] : isChanged(name) ? asked[name] : undefined;
		return value === undefined || value === false ? [] : [[name, value] as const];
	});
	const filter = of("filter");
	return {
		...Object.fromEntries(limits),
		...(filter === undefined ? {} : { filter }),
		...{ owner: base.owner, period: of("period"), timeZone: of("timeZone"), model: of("model") },
		...{ usageId: of("usageId"), thresholds: of("thresholds") },
		...{ eachConversation: of("eachConversation"), pause: of("pause") },
	};
}

/** @throws ServiceError `invalid_argument` that names the field */
function judged(asked: Settings, owner: string): Settings {
	const { period, thresholds, filter, model, usageId } = asked;
	const limits = LIMITS.filter((name) => asked[name] !== undefined);
	if (limits.length !== 1) throw invalid("amount", "or tokens must be given, or one rule, and no more of them");
	if (asked.pause && ruleOf(asked) !== undefined) throw invalid("pause", "is for budgets with an amount only");
	for (const name of limits) {
		const [value, largest] = [Number(asked[name]), LARGEST[name]];
		if (!(value > 0 && value <= largest))
			throw invalid(BudgetSchema.field[name].name, `must be more than 0 and at most ${largest}`);
	}
	if (BudgetPeriod[period] === undefined) throw invalid("period", "is not a known period");
	if (timeZone(asked.timeZone) === undefined)
		throw invalid("time_zone", "is not a name of the IANA time zone database");
	if (thresholds.length > MAX_THRESHOLDS) throw invalid("thresholds", `must have at most ${MAX_THRESHOLDS} entries`);
	if (!thresholds.every((part) => part > 0 && part <= MAX_THRESHOLD))
		throw invalid("thresholds", `must be more than 0 and at most ${MAX_THRESHOLD}`);
	for (const [name, text] of [
		["model", model],
		["usage_id", usageId],
	] as const)
		if (wellFormed(text, name).length > MAX_NAME) throw invalid(name, `must have at most ${MAX_NAME} characters`);
	conditionsOnUpdates(filter);
	const parts = thresholds.length === 0 && ruleOf(asked) === undefined ? DEFAULT_THRESHOLDS : thresholds;
	return {
		...asked,
		owner,
		...(filter === undefined ? {} : { filter: withIds(filter) }),
		thresholds: [...new Set(parts)].sort((a, b) => a - b),
		eachConversation: asked.eachConversation || period === BudgetPeriod.CONVERSATION,
	};
}

/** Returns a filter whose ids have the form in which they are stored. */
function withIds(filter: ConversationFilter): ConversationFilter {
	return create(ConversationFilterSchema, { ...filter, ids: filter.ids.map((id) => uuid(id, "filter.ids")) });
}

function bytesOf(settings: Settings): Uint8Array {
	return toBinary(BudgetSchema, create(BudgetSchema, settings));
}
