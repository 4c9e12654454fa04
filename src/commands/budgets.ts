import {
	create,
	type DescMessage,
	type JsonValue,
	type MessageShape,
	ScalarType,
	toJsonString,
} from "@bufbuild/protobuf";
import { FieldMaskSchema } from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import {
	type Budget,
	BudgetPeriod,
	BudgetService,
	BudgetState,
	CreateBudgetRequestSchema,
	UpdateBudgetRequestSchema,
} from "../../gen/conversations/v1/budget_service_pb.js";
import { ConversationFilterSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import { Budgets } from "../budgets/budgets.ts";
import type { Config } from "../config/config.ts";
import { ReportUsage } from "../conversations/read/report-usage.ts";
import { visibleStore } from "../conversations/read/visible-store.ts";
import { budgetMethods } from "../rpc/admin-methods.ts";
import { readRequest } from "../transports/reads/parameters.ts";
import { callAsCommand, filterOption } from "./admin.ts";
import { UsageError, type Values } from "./options.ts";
import { tableOf, timeText } from "./output.ts";

/** The commands `budgets`. Each is a client of `BudgetService`. */

/** What a command is called with. */
interface Asked {
	readonly name: string;
	/** Empty for none. */
	readonly owner: string;
	/** Texts `SETTING=VALUE`. */
	readonly settings: readonly string[];
	/** The filter of `--filter`; undefined without the option. */
	readonly filter: string | undefined;
}

type Action = (client: Client<typeof BudgetService>, asked: Asked) => Promise<readonly string[]>;

const ACTIONS = {
	async list(client) {
		const { budgets } = await client.listBudgets({});
		const head = ["NAME", "OWNER", "PERIOD", "STATE", "SPENT", "LIMIT", "FORECAST"];
		const rows = budgets.map((budget) => {
			const { name, owner, state, spent, forecast } = budget;
			return [
				name,
				owner || "-",
				periodText(budget),
				stateText(state),
				`${spent}`,
				limitText(budget),
				`${forecast ?? "-"}`,
			];
		});
		return tableOf([head, ...rows]);
	},
	async show(client, { name, owner }) {
		const { budget } = await client.getBudget({ name, owner });
		return budget === undefined ? [] : tableOf(membersOf(budget));
	},
	async create(client, { name, owner, settings, filter }) {
		const { request } = readSettings(CreateBudgetRequestSchema, settings, filter);
		await client.createBudget({ ...request, name, owner });
		return [`The budget ${name} was created.`];
	},
	async update(client, { name, owner, settings, filter }) {
		const { request, paths } = readSettings(UpdateBudgetRequestSchema, settings, filter);
		if (paths.length === 0) throw new UsageError("Give a setting, such as amount=200, or --filter");
		await client.updateBudget({ ...request, name, owner, updateMask: create(FieldMaskSchema, { paths: [...paths] }) });
		return [`The budget ${name} was changed.`];
	},
	async delete(client, { name, owner }) {
		await client.deleteBudget({ name, owner });
		return [`The budget ${name} is deleted.`];
	},
} as const satisfies Readonly<Record<string, Action>>;

export type BudgetAction = keyof typeof ACTIONS;

/** Does something with budgets. Returns the lines that are printed. */
export async function runBudgets(
	config: Config,
	action: BudgetAction,
	[name = "", ...settings]: readonly string[],
	{ owner = "", filter }: Values,
): Promise<readonly string[]> {
	if (name === "" && action !== "list") throw new UsageError("Give the name of a budget");
	const run: Action = ACTIONS[action];
	return await callAsCommand(
		config,
		BudgetService,
		(client) => run(client, { name, owner, settings, filter }),
		async ({ store }) => {
			const budgets = new Budgets({ store, now: Date.now, onChange: () => undefined });
			return budgetMethods(budgets, store, {
				of: (caller) => ({ usage: new ReportUsage(visibleStore(store, caller.owner)) }),
			});
		},
	);
}

/** Fields of the requests that are no settings, or have an option of their own. */
const OTHERS: ReadonlySet<string> = new Set(["name", "owner", "filter", "update_mask"]);

/**
 * Reads settings `SETTING=VALUE` with the names of the fields of a request. The values of a list are separated by commas. A
 * setting without a value gets its default.
 *
 * @returns the request, and the names of the fields that were given
 * @throws UsageError when there is no such setting
 * @throws ServiceError `invalid_argument` that names the setting
 */
function readSettings<Request extends DescMessage>(
	schema: Request,
	settings: readonly string[],
	filter: string | undefined,
): { readonly request: MessageShape<Request>; readonly paths: readonly string[] } {
	const fields = new Map(schema.fields.filter(({ name }) => !OTHERS.has(name)).map((field) => [field.name, field]));
	const body = new Map<string, JsonValue>();
	const paths = new Set<string>();
	for (const setting of settings) {
		const [, name = "", text = ""] = /^(\w+)=(.*)$/s.exec(setting) ?? [];
		const field = fields.get(name);
		if (field === undefined)
			throw new UsageError(`Give settings such as amount=200. There are ${[...fields.keys()].join(", ")}`);
		if (paths.has(name)) throw new UsageError(`${name} is given twice`);
		paths.add(name);
		if (text === "") continue;
		const isList = field.fieldKind === "list";
		const isSwitch = field.scalar === ScalarType.BOOL && (text === "true" || text === "false");
		body.set(name, isList ? text.split(",") : isSwitch ? text === "true" : text);
	}
	const json = Buffer.from(JSON.stringify(Object.fromEntries(body)));
	const request = readRequest(schema, [], { params: {}, search: "", body: json });
	const given = filter === undefined ? {} : { filter: filterOption(filter) };
	return { request: { ...request, ...given }, paths: [...paths, ...Object.keys(given)] };
}

function membersOf(budget: Budget): string[][] {
	const { name, owner, timeZone, filter, model, usageId, thresholds, eachConversation, pause } = budget;
	return [
		["name", name],
		["owner", owner || "-"],
		["limit", limitText(budget)],
		["period", periodText(budget)],
		["time zone", timeZone || "UTC"],
		["filter", filter === undefined ? "-" : toJsonString(ConversationFilterSchema, filter)],
		["model", model || "-"],
		["usage id", usageId || "-"],
		["thresholds", thresholds.join() || "-"],
		["each conversation", eachConversation ? "yes" : "no"],
		["pause", pause ? "yes" : "no"],
		["spent", `${budget.spent}`],
		["forecast", `${budget.forecast ?? "-"}`],
		["state", stateText(budget.state)],
		["from", timeText(budget.periodStart)],
		["to", timeText(budget.periodEnd)],
		...budget.spenders.map(({ conversationId, spent }) => [
			"spender",
			`${spent} by ${conversationId || "erased ones"}`,
		]),
		["created", `${timeText(budget.createdAt)} by ${budget.createdBy}`],
	];
}

/** Returns what a budget limits: an amount, tokens, or the rule in place of them. */
function limitText(budget: Budget): string {
	const { amount, tokens, silentMinutes, waitingMinutes, gapMinutes, stalledEvents } = budget;
	if (amount !== undefined) return `${amount}`;
	if (tokens !== undefined) return `${tokens} tokens`;
	if (silentMinutes !== undefined) return `silent for ${silentMinutes} minutes`;
	if (waitingMinutes !== undefined) return `waiting for ${waitingMinutes} minutes`;
	if (gapMinutes !== undefined) return `gaps for ${gapMinutes} minutes`;
	return stalledEvents === undefined ? "stuck" : `${stalledEvents} events without a leaf`;
}

function periodText({ period }: Budget): string {
	return BudgetPeriod[period].toLowerCase();
}

function stateText(state: BudgetState): string {
	return BudgetState[state].toLowerCase();
}
