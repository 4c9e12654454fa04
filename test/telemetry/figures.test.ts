import { emptyResource } from "@opentelemetry/resources";
import { expect, test } from "vitest";
import { addUsageFigures } from "../../src/telemetry/figures.ts";
import { Metrics } from "../../src/telemetry/metrics.ts";

test("costs of the models that share a label add up as everywhere, in any order and without a rest", async () => {
	const named = Array.from({ length: 20 }, (_, n) => ({ model: `named-${n}`, cost: 100 - n, calls: 1, tokens: {} }));
	const others = [0.1, 0.2, 0.7].map((cost) => ({
		model: `model-of-${cost}`,
		cost,
		calls: 2,
		tokens: { prompt: 9_000_000_000 },
	}));
	await using metrics = new Metrics(emptyResource(), []);
	addUsageFigures(metrics, { listModelUsage: async () => [...named, ...others] });
	const scraped = await metrics.scrape();
	const shown = (line: RegExp) => line.exec(scraped)?.[1];
	expect(0.7 + 0.2 + 0.1).not.toBe(1);
	expect(shown(/^conversations_usage_cost_total\{.*model="other".*\} (\S+)/m)).toBe("1");
	expect(shown(/^conversations_usage_cost_total\{.*model="named-0".*\} (\S+)/m)).toBe("100");
	// More tokens than a cost can have units.
	expect(shown(/^conversations_usage_tokens_total\{.*model="other".*\} (\S+)/m)).toBe("27000000000");
	expect(shown(/^conversations_usage_calls_total\{.*model="other".*\} (\S+)/m)).toBe("6");
});
