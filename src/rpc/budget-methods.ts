import { BudgetService } from "../../gen/conversations/v1/budget_service_pb.js";
import type { Budgets } from "../budgets/budgets.ts";
import { shownBudget } from "../budgets/shown.ts";
import type { UsageReads } from "../budgets/spending.ts";
import type { BudgetRow } from "../store/budgets.ts";
import type { Store } from "../store/store.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** The methods of `BudgetService`. */
export function budgetMethods(
	budgets: Budgets,
	store: Pick<Store, "listConversations" | "tables">,
	reads: UsageReads,
): readonly RpcMethod[] {
	const { method } = BudgetService;
	const shown = async (row: BudgetRow) => ({ budget: await shownBudget(store, reads, row, true, Date.now()) });
	return [
		unary(method.createBudget, async (request, caller) => await shown(await budgets.create(request, request, caller))),
		unary(method.listBudgets, async (_, caller) => {
			const rows = await budgets.list(caller);
			return { budgets: await Promise.all(rows.map((row) => shownBudget(store, reads, row, false, Date.now()))) };
		}),
		unary(method.getBudget, async (request, caller) => await shown(await budgets.get(request, caller))),
		unary(
			method.updateBudget,
			async (request, caller) => await shown(await budgets.update(request, request, request.updateMask?.paths, caller)),
		),
		unary(method.deleteBudget, async (request, caller) => {
			await budgets.delete(request, caller);
			return {};
		}),
	];
}
