import "./style.css";
import { createClient } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import {
	type Budget,
	BudgetPeriod,
	BudgetService,
	type BudgetSpender,
	BudgetState,
} from "../../../../gen/conversations/v1/budget_service_pb.js";
import { ColumnHeads } from "../../parts/column-heads.tsx";
import { cost, full } from "../../parts/format.ts";
import { Notice, ProblemLine, ProblemNotice } from "../../parts/notice.tsx";
import { usePolled } from "../../service/polled.ts";
import { type Problem, problemOf, transport } from "../../service/service.ts";
import { addressOf, query } from "../../shell/route.ts";
import { useTitle } from "../../shell/title.ts";

const client = createClient(BudgetService, transport);
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
	const { list, problem } = usePolled(async () => (await client.listBudgets({})).budgets, INTERVAL);
	if (problem.value !== undefined) return <ProblemNotice problem={problem.value} />;
	if (list.value === undefined) return <Notice title="Loading…" />;
	if (list.value.length === 0)
		return (
			<Notice title="No budget yet">
				<span>A budget is an amount that conversations may spend in some time. The API and the command make them.</span>
			</Notice>
		);
	const [name, owner] = [query.value.get("budget"), query.value.get("owner") ?? ""];
	const shown = list.value.find((one) => one.name === name && one.owner === owner);
	return (
		<div class="budgets">
			<h1 class="visually-hidden">Budgets</h1>
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
			{shown !== undefined && <Spenders key={`${owner}/${name}`} budget={shown} />}
		</div>
	);
}

function Line({ budget }: { readonly budget: Budget }) {
	const { name, owner, state, spent, forecast, period, eachConversation } = budget;
	const limit = limitOf(budget);
	return (
		<tr>
			<th scope="row">
				<a href={addressOf(["budgets"], { budget: name, ...(owner === "" ? {} : { owner }) })}>{name}</a>{" "}
				{owner !== "" && <span class="tag">{owner}</span>}
			</th>
			<td class={state === BudgetState.EXCEEDED ? "error" : ""}>{STATES[state]}</td>
			<td class="number">{limit === undefined ? full(spent) : amountText(budget, spent)}</td>
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

/** The conversations that spent the most of a budget. */
function Spenders({ budget }: { readonly budget: Budget }) {
	const { name, owner } = budget;
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
