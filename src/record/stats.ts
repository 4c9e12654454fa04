import { clone, equals } from "@bufbuild/protobuf";
import { type ConversationStats, type Metrics, MetricsSchema } from "../../gen/conversations/v1/stats_pb.js";

/** What the `stats` of a record say of costs and calls. */

/** Units of cost in one unit of the record's currency: costs are added up in integers of 10⁻⁹. */
export const COST_UNITS = 1_000_000_000;
const MAX_UNITS = 2n ** 63n - 1n;

/** Converts a cost to units. One beyond 64 bits ends at the limit; one that is no number is 0. */
export function costUnits(cost: number): bigint {
	const units = Math.round(cost * COST_UNITS);
	if (!Number.isFinite(units)) return units > 0 ? MAX_UNITS : 0n;
	const exact = BigInt(units);
	return exact > MAX_UNITS ? MAX_UNITS : exact < -MAX_UNITS ? -MAX_UNITS : exact;
}

/** Returns the sum of costs, in the record's currency. Costs below half a unit count as 0. */
export function sumOfCosts(costs: readonly number[]): number {
	const sum = costs.reduce((units, cost) => units + costUnits(cost), 0n);
	return Number(sum > MAX_UNITS ? MAX_UNITS : sum) / COST_UNITS;
}

/** Kinds of tokens that are added up. */
export const TOKENS = [
	"promptTokens",
	"completionTokens",
	"cacheReadTokens",
	"cacheWriteTokens",
	"reasoningTokens",
] as const;
type Usage = Metrics["tokenUsages"][number];

/**
 * Returns the metrics by usage id, each call once. Several usage ids can share the metrics of one model at the sender: the
 * same response id with the same tokens is one call, of the first usage id in the order of their names, because maps have no
 * order. Within a usage id calls may share an id.
 */
export function metricsOf(stats: ConversationStats | undefined): (readonly [usageId: string, metrics: Metrics])[] {
	const all = Object.entries(stats?.usageToMetrics ?? {});
	if (all.length < 2 || all.filter(([, { tokenUsages }]) => tokenUsages.some(hasId)).length < 2) return all;
	all.sort(([one], [other]) => (one < other ? -1 : 1));
	const earlier: Metrics[] = [];
	return all.flatMap(([usageId, metrics]) => {
		const own = earlier.reduce<Metrics | undefined>((left, before) => left && without(left, before), metrics);
		earlier.push(metrics);
		return own === undefined ? [] : [[usageId, own] as const];
	});
}

/** Returns metrics without the calls that other metrics have too; undefined when both are the same. */
function without(metrics: Metrics, before: Metrics): Metrics | undefined {
	const known = counts(before.tokenUsages.filter(hasId).map(keyOf));
	const [repeated, tokenUsages] = split(metrics.tokenUsages, (usage) => hasId(usage) && take(known, keyOf(usage)));
	if (repeated.length === 0) return metrics;
	if (equals(MetricsSchema, metrics, before)) return undefined;
	const knownCosts = counts(before.costs.map(costKey));
	const [repeatedCosts, costs] = split(metrics.costs, (cost) => take(knownCosts, costKey(cost)), repeated.length);
	const knownLatencies = counts(repeated.map(({ responseId }) => responseId ?? ""));
	const [, responseLatencies] = split(metrics.responseLatencies, ({ responseId }) =>
		take(knownLatencies, responseId ?? ""),
	);
	const own = clone(MetricsSchema, metrics);
	Object.assign(own, { tokenUsages, costs, responseLatencies });
	const cost = sumOfCosts([own.accumulatedCost ?? 0, ...repeatedCosts.map((one) => -(one.cost ?? 0))]);
	own.accumulatedCost = Math.max(0, cost);
	const total = own.accumulatedTokenUsage;
	if (total !== undefined)
		for (const name of TOKENS) {
			if (total[name] === undefined) continue;
			const left = repeated.reduce((sum, usage) => sum - (usage[name] ?? 0n), total[name]);
			total[name] = left > 0n ? left : 0n;
		}
	return own;
}

function hasId({ responseId = "" }: Usage): boolean {
	return responseId !== "";
}

function keyOf({ model, responseId, ...usage }: Usage): string {
	return JSON.stringify([model, responseId, ...TOKENS.map((name) => String(usage[name] ?? 0n))]);
}

function costKey({ model, cost, timestamp }: Metrics["costs"][number]): string {
	return JSON.stringify([model, cost, timestamp]);
}

function counts(keys: readonly string[]): Map<string, number> {
	const found = new Map<string, number>();
	for (const key of keys) found.set(key, (found.get(key) ?? 0) + 1);
	return found;
}

function take(left: Map<string, number>, key: string): boolean {
	const count = left.get(key) ?? 0;
	left.set(key, count - 1);
	return count > 0;
}

/** Returns the first items that a test finds, up to a number, and all others. */
function split<Item>(
	items: readonly Item[],
	test: (item: Item) => boolean,
	most = Number.POSITIVE_INFINITY,
): [found: Item[], others: Item[]] {
	const [found, others]: [Item[], Item[]] = [[], []];
	for (const item of items) (found.length < most && test(item) ? found : others).push(item);
	return [found, others];
}
