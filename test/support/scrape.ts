import type { Endpoints } from "./clients.ts";

/** One value of a metric. */
export interface ScrapedSample {
	readonly name: string;
	readonly labels: Readonly<Record<string, string>>;
	readonly value: number;
}

/** The result of a scrape by Prometheus. */
export interface Scraped {
	readonly text: string;
	/** Types of the metrics, by name. */
	readonly types: ReadonlyMap<string, string>;
	readonly samples: readonly ScrapedSample[];
}

/** Reads the metrics of a service. The key must permit it. */
export async function scrape(service: Endpoints, key: string): Promise<Scraped> {
	const response = await fetch(`${service.http}/metrics`, { headers: { "X-Access-Token": key } });
	const text = await response.text();
	if (response.status !== 200) throw new Error(`${response.status}: ${text}`);
	return parseMetrics(text);
}

/**
 * Parses the part of Prometheus's text format 0.0.4 that the service uses.
 *
 * @throws Error at a line that does not belong to it
 */
export function parseMetrics(text: string): Scraped {
	const types = new Map<string, string>();
	const samples: ScrapedSample[] = [];
	for (const line of text.split("\n").filter((found) => found !== "")) {
		const [, named, type] = /^# TYPE (\w+) (gauge|counter|histogram)$/.exec(line) ?? [];
		if (named !== undefined && type !== undefined) types.set(named, type);
		if (/^# (?:TYPE|HELP) \w+ ./.test(line)) continue;
		const [, name, labels = "", value] = /^([a-z]\w*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
		if (name === undefined || Number.isNaN(Number(value))) throw new Error(`no line of metrics: ${line}`);
		const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"(?:,|$)/g)];
		if (pairs.map(([whole]) => whole).join("") !== labels) throw new Error(`no labels: ${labels}`);
		samples.push({ name, labels: Object.fromEntries(pairs.map(([, key, text]) => [key, text])), value: Number(value) });
	}
	return { text, types, samples };
}

/** Returns the metric of a sample. The samples of a histogram have suffixes in their names. */
export function familyOf({ types }: Scraped, { name }: ScrapedSample): string {
	const base = name.replace(/_(?:bucket|sum|count)$/, "");
	return types.get(base) === "histogram" ? base : name;
}

/** Returns the values of a histogram's or counter's samples by their labels, such as `a=1 b=2`. */
export function countsOf({ samples }: Scraped, name: string): Readonly<Record<string, number>> {
	return Object.fromEntries(
		samples
			.filter((sample) => sample.name === name)
			.map(({ labels, value }) => [
				Object.entries(labels)
					.map(([key, text]) => `${key}=${text}`)
					.join(" "),
				value,
			]),
	);
}
