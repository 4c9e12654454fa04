import "./style.css";
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import {
	type Budget,
	BudgetPeriod,
	type BudgetSpender,
	BudgetState,
} from "../../../../gen/conversations/v1/budget_service_pb.js";
import { ColumnHeads } from "../../parts/column-heads.tsx";
import { ConfirmDialog } from "../../parts/fields.tsx";
import { cost, full } from "../../parts/format.ts";
import { Notice, ProblemLine, ProblemNotice } from "../../parts/notice.tsx";
import { usePolled } from "../../service/polled.ts";
import { type Problem, problemOf } from "../../service/service.ts";
import { addressOf, go, query } from "../../shell/route.ts";
import { useTitle } from "../../shell/title.ts";
import { client } from "./client.ts";
import { addressOfBudget, EditBudget, NewBudget } from "./form.tsx";

/** Milliseconds between two reads of the budgets. */
const INTERVAL = 15_000;
const COLUMNS = ["Budget", "State", "Spent", "Limit", "Share", "Forecast", "Period"] as const;
/** Columns of numbers. */
const NUMBERS: ReadonlySet<string> = new Set(["Spent", "Limit", "Share", "Forecast"]);
const STATES: Readonly<Record<BudgetState, string>> = {
	[BudgetState.UNSPECIFIED]: "not known",
	[BudgetState.OK]: "✓ ok",
	[BudgetState.WARNING]: "warning",
	[BudgetState.EXCEEDED]: "✕ exceeded",
};

/** The budgets with what is spent of them, and what spends the one in the address. */
export default function BudgetsPage() {
	useTitle("Budgets");
	const { list, problem, load } = usePolled(async () => (await client.listBudgets({})).budgets, INTERVAL);
	if (problem.value !== undefined) return <ProblemNotice problem={problem.value} />;
	if (list.value === undefined) return <Notice title="Loading…" />;
	const [name, owner] = [query.value.get("budget"), query.value.get("owner") ?? ""];
	const shown = list.value.find((one) => one.name === name && one.owner === owner);
	return (
		<div class="budgets">
			<h1 class="visually-hidden">Budgets</h1>
			{list.value.length === 0 ? (
				<Notice title="No budget yet">
					<span>A budget is an amount that conversations may spend in some time.</span>
				</Notice>
			) : (
				<div class="scroll" role="region" aria-label="Budgets" tabIndex={0}>
					<table class="card wide">
						<ColumnHeads titles={COLUMNS} numbers={NUMBERS} />
						<tbody>
							{list.value.map((one) => (
								<Line key={`${one.owner}/${one.name}`} budget={one} />
							))}
						</tbody>
					</table>
				</div>
			)}
			{shown !== undefined && <BudgetView key={`${owner}/${name}`} budget={shown} onChange={() => void load()} />}
			<NewBudget onMade={() => void load()} />
		</div>
	);
}

function Line({ budget }: { readonly budget: Budget }) {
	const { name, owner, state, spent, forecast, period, eachConversation } = budget;
	const { conversationsNotReported: notReported = 0n } = budget;
	const limit = limitOf(budget);
	return (
		<tr>
			<th scope="row">
				<a href={addressOfBudget(budget)}>{name}</a> {owner !== "" && <span class="tag">{owner}</span>}
			</th>
			<td class={state === BudgetState.EXCEEDED ? "error" : ""}>{STATES[state]}</td>
			<td class="number">
				{limit === undefined ? full(spent) : amountText(budget, spent)}
				{notReported > 0n && <div class="small">{full(notReported)} not reported</div>}
			</td>
			<td class="number">{limit === undefined ? "" : amountText(budget, limit)}</td>
			<td class="number">{limit === undefined ? "" : `${full(Math.round((spent / limit) * 100))} %`}</td>
			<td class="number">{forecast === undefined ? "" : amountText(budget, forecast)}</td>
			<td>
				{limit === undefined ? "conversations now" : BudgetPeriod[period].toLowerCase()}
				{eachConversation && period !== BudgetPeriod.CONVERSATION && <div class="small">each conversation</div>}
			</td>
		</tr>
	);
}

interface BudgetViewProps {
	readonly budget: Budget;
	/** Called when the budget has changed. */
	readonly onChange: () => void;
}

/** A budget, what can be done with it, and the conversations that spent the most of it. */
function BudgetView({ budget, onChange }: BudgetViewProps) {
	const { name, owner } = budget;
	const isEdited = useSignal(false);
	const isDeleted = useSignal(false);
	const said = useSignal("");
	const spenders = useSignal<readonly BudgetSpender[] | undefined>(undefined);
	const problem = useSignal<Problem | undefined>(undefined);
	const load = async (): Promise<void> => {
		try {
			spenders.value = (await client.getBudget({ name, owner })).budget?.spenders ?? [];
			problem.value = undefined;
		} catch (error) {
			problem.value = problemOf(error);
		}
	};
	useEffect(() => void load(), [budget]);
	return (
		<section class="card" aria-labelledby="budget-title">
			<h2 id="budget-title">What spends {name}</h2>
			<p class="row">
				<button
					type="button"
					aria-expanded={isEdited.value}
					onClick={() => {
						isEdited.value = !isEdited.value;
					}}
				>
					Edit
				</button>
				<button
					type="button"
					onClick={() => {
						isDeleted.value = true;
					}}
				>
					Delete…
				</button>
			</p>
			{isEdited.value && (
				<EditBudget
					budget={budget}
					onSaved={() => {
						isEdited.value = false;
						said.value = "It is changed.";
						onChange();
					}}
				/>
			)}
			{isDeleted.value && (
				<ConfirmDialog
					title={`Delete the budget ${name} for good`}
					action="Delete"
					act={async () => {
						await client.deleteBudget({ name, owner });
						go(addressOf(["budgets"]));
						onChange();
					}}
					onClose={() => {
						isDeleted.value = false;
					}}
				>
					Nobody is told any more when it is spent, and nothing is paused.
				</ConfirmDialog>
			)}
			<p role="status">{said.value}</p>
			{problem.value !== undefined && <ProblemLine problem={problem.value} retry={() => void load()} />}
			{spenders.value?.length === 0 && <p class="muted">Nothing in this period.</p>}
			<ol>
				{spenders.value?.map(({ conversationId, spent }) => (
					<li key={conversationId}>
						{conversationId === "" ? (
							"Erased conversations"
						) : (
							<a href={addressOf(["conversations", conversationId])}>
								<code>{conversationId}</code>
							</a>
						)}
						: {amountText(budget, spent)}
					</li>
				))}
			</ol>
		</section>
	);
}

/** Returns the amount of a budget; undefined for a rule without one. */
function limitOf({ amount, tokens }: Budget): number | undefined {
	return amount ?? (tokens === undefined ? undefined : Number(tokens));
}

function amountText({ tokens }: Budget, value: number): string {
	return tokens === undefined ? cost(value) : `${full(Math.round(value))} tokens`;
}
