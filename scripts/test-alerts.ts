/**
 * Tests the alert rules of deploy/prometheus-alerts.yaml with Prometheus itself: `npm run test:alerts`. Each rule is tested
 * with `promtool test rules` on series that a scrape of the real program has, and some with a Prometheus that scrapes the
 * program, with durations of seconds in place of minutes. `promtool` and `prometheus` must be installed (Debian:
 * `apt-get install prometheus`, whose service is not needed), because npm does not have them.
 */
import { deepEqual, ok } from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { parse, stringify } from "yaml";
import { z } from "zod";
import { ServiceProcess } from "../test/support/child.ts";
import { postWebhook } from "../test/support/clients.ts";
import { record } from "../test/support/fixtures.ts";
import { freePort } from "../test/support/free-port.ts";
import { type Scraped, scrape } from "../test/support/scrape.ts";
import { KEY } from "../test/support/service.ts";
import { ROOT } from "../test/support/start-command.ts";
import { TempFolder } from "../test/support/temp.ts";

const SCRAPER = "key-of-prometheus-itself";
const RULES = join(ROOT, "deploy/prometheus-alerts.yaml");
const TARGET = 'job="conversations", instance="a"';

/** A rule, with series on which it fires and series on which it does not. Values are in promtool's notation. */
interface RuleCase {
	readonly alert: string;
	/** When it is evaluated. */
	readonly at: string;
	/** Interval of the values; one minute by default. */
	readonly interval?: string;
	/** Values by series: its name with its labels, without those of the target. */
	readonly fires: Readonly<Record<string, string>>;
	readonly quiet: Readonly<Record<string, string>>;
}

const ended = (request: string, outcome: string) =>
	`conversations_requests_ended_total{outcome="${outcome}", request="${request}"}`;
const bucket = (le: string) => `conversations_commit_duration_seconds_bucket{le="${le}"}`;
const HOOK = '{endpoint="hook", owner=""}';
const cost = 'conversations_usage_cost_total{model="a"}';
const gauge = (alert: string, at: string, series: string, fires: string, quiet: string): RuleCase => ({
	alert,
	at,
	fires: { [series]: fires },
	quiet: { [series]: quiet },
});

const CASES: readonly RuleCase[] = [
	gauge("Down", "3m", "up", "0x5", "1x5"),
	gauge("NotReady", "3m", "conversations_ready", "0x5", "1x5"),
	gauge("QueueOld", "3m", 'conversations_queue_age_seconds{thread="writer"}', "6x5", "4x5"),
	gauge("ViewBehind", "5m", 'conversations_view_lag_seconds{view="conversations"}', "11x10", "9x10"),
	{
		alert: "CommitSlow",
		at: "15m",
		fires: { [bucket("1")]: "0x20", [bucket("2.5")]: "0+10x20", [bucket("+Inf")]: "0+10x20" },
		quiet: { [bucket("1")]: "0+10x20", [bucket("2.5")]: "0+10x20", [bucket("+Inf")]: "0+10x20" },
	},
	{
		alert: "DiskFull",
		at: "10m",
		fires: { conversations_disk_available_bytes: "5x12", conversations_disk_size_bytes: "100x12" },
		quiet: { conversations_disk_available_bytes: "11x12", conversations_disk_size_bytes: "100x12" },
	},
	gauge(
		"WalLarge",
		"20m",
		'conversations_database_size_bytes{file="write-ahead-log"}',
		"2000000000x25",
		"900000000x25",
	),
	{
		alert: "RefusedShare",
		at: "30m",
		fires: { [ended("post", "success")]: "0+90x40", [ended("post", "failed")]: "0+10x40" },
		quiet: { [ended("post", "success")]: "0+99x40", [ended("post", "failed")]: "0+1x40" },
	},
	{
		alert: "Overloaded",
		at: "20m",
		fires: { [ended("post", "success")]: "0+90x40", [ended("post", "unavailable")]: "0+2x40" },
		quiet: {
			[ended("post", "success")]: "0+90x40",
			[ended("post", "failed")]: "0+10x40",
			[ended("post", "unavailable")]: "0x40",
		},
	},
	gauge("AccessKeyExpires", "1m", "conversations_access_keys_expiring", "1x3", "0x3"),
	gauge("KeyWrong", "10m", 'conversations_requests_unauthenticated_total{transport="http"}', "0 0 40x20", "0 0 10x20"),
	gauge("SenderSilent", "10m", "conversations_senders_silent", "1x12", "0x12"),
	gauge("Silent", "30m", "conversations_silent", "1x40", "0x40"),
	{
		alert: "CostUnusual",
		at: "60h",
		interval: "15m",
		fires: { [cost]: "0+1x232 300+100x10", conversations_ready: "1x300" },
		quiet: { [cost]: "0+1x300", conversations_ready: "1x300" },
	},
	gauge("Gaps", "70m", 'conversations_with_gaps{age="lasting"}', "0x60 3x20", "3x90"),
	gauge("Unheard", "40m", "conversations_unheard", "1x50", "0x50"),
	gauge("LogLost", "5m", "conversations_log_dropped_lines_total", "0 0 1x5", "0x10"),
	{
		alert: "RpcRefusedShare",
		at: "30m",
		fires: { [ended("rpc", "success")]: "0+90x40", [ended("rpc", "failed")]: "0+10x40" },
		quiet: {
			[ended("rpc", "success")]: "0+90x40",
			[ended("rpc", "failed")]: "0x40",
			[ended("rpc", "canceled")]: "0+50x40",
		},
	},
	gauge("NoUpdate", "400m", 'conversations_newest_sequence{log="updates"}', "7x500", "7+1x500"),
	gauge("EndpointDisabled", "3m", `conversations_endpoint_disabled${HOOK}`, "1x5", "0x5"),
	gauge("EndpointFailing", "3m", `conversations_endpoint_failing_seconds${HOOK}`, "3700x5", "3000x5"),
	gauge("EndpointLost", "10m", `conversations_endpoint_lost_total${HOOK}`, "0 0 1x20", "7x20"),
	gauge("BudgetExceeded", "3m", 'conversations_budget_share{budget="team", owner=""}', "1.01x5", "1x5"),
	gauge("WatcherBehind", "15m", 'conversations_watch_lag{log="updates"}', "20000x20", "5000x20"),
];

const rulesForm = z.object({
	groups: z.array(
		z.object({
			name: z.string(),
			rules: z.array(z.looseObject({ alert: z.string(), expr: z.string(), for: z.string() })),
		}),
	),
});
const { groups } = rulesForm.parse(parse(readFileSync(RULES, "utf8")));
const named = groups.flatMap(({ rules }) => rules.map(({ alert }) => alert));

/** Returns a series with the labels of the target. */
function ofTarget(series: string): string {
	const [name, labels] = series.replace("}", "").split("{");
	return `${name}{${[labels, TARGET].filter(Boolean).join(", ")}}`;
}

/** Fails when the program does not have a series with these labels. */
function requireScraped({ samples }: Scraped, series: string): void {
	const [name = "", labels = ""] = series.replace("}", "").split("{");
	const wanted = Object.fromEntries([...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, key, value]) => [key, value]));
	const found = samples.some(
		(sample) =>
			sample.name === name &&
			deepEqualLabels(sample.labels, wanted, name.startsWith("conversations_usage") ? ["model"] : []),
	);
	ok(name === "up" || found, `the program has no series ${series}`);
}

function deepEqualLabels(
	labels: Readonly<Record<string, string>>,
	wanted: Readonly<Record<string, string | undefined>>,
	anyValue: readonly string[],
): boolean {
	const names = Object.keys(labels).sort().join();
	return (
		names === Object.keys(wanted).sort().join() &&
		Object.entries(labels).every(([name, value]) => anyValue.includes(name) || wanted[name] === value)
	);
}

/** Tests each rule with `promtool test rules`. */
function testRules(folder: TempFolder, scraped: Scraped): void {
	deepEqual(CASES.map(({ alert }) => `Conversations${alert}`).sort(), named.toSorted());
	copyFileSync(RULES, folder.file("rules.yaml"));
	const tests = CASES.flatMap(({ alert, at, interval = "1m", fires, quiet }) =>
		[fires, quiet].map((values) => {
			for (const series of Object.keys(values)) requireScraped(scraped, series);
			return {
				interval,
				input_series: Object.entries(values).map(([series, text]) => ({ series: ofTarget(series), values: text })),
				promql_expr_test: [
					{
						expr: `count(ALERTS{alertname="Conversations${alert}", alertstate="firing"})`,
						eval_time: at,
						exp_samples: values === fires ? [{ labels: "{}", value: 1 }] : [],
					},
				],
			};
		}),
	);
	// A new deployment whose cost is the same in each hour, looked at after each hour of its first two days.
	const hours = Array.from({ length: 48 }, (_, hour) => `${hour + 1}h`);
	tests.push({
		interval: "15m",
		input_series: [
			{ series: ofTarget(cost), values: "0+1x300" },
			{ series: ofTarget("conversations_ready"), values: "1x300" },
		],
		promql_expr_test: hours.map((at) => ({
			expr: 'count(ALERTS{alertname="ConversationsCostUnusual"})',
			eval_time: at,
			exp_samples: [],
		})),
	});
	const file = folder.file("tests.yaml");
	writeFileSync(file, stringify({ rule_files: ["rules.yaml"], evaluation_interval: "1m", tests }));
	const { status, stdout, stderr } = spawnSync("promtool", ["test", "rules", file], { encoding: "utf8" });
	ok(status === 0, stdout + stderr);
	console.log(`promtool: ${CASES.length} rules fire and stay quiet as they should, on ${tests.length} sets of series`);
}

/** Returns the rules with seconds in place of minutes, minutes in place of hours, and hours in place of days. */
function scaled(text: string): string {
	const units: Readonly<Record<string, string>> = { m: "s", h: "m", d: "h" };
	return text
		.replaceAll(/(?<=\[|:|offset )(\d+)([mhd])(?=\]|:|$|\s)/g, (_, count, unit) => `${count}${units[unit]}`)
		.replaceAll(/(?<=for: )(\d+)m/g, "$1s");
}

const alertsForm = z.object({
	data: z.object({ alerts: z.array(z.object({ state: z.string(), labels: z.object({ alertname: z.string() }) })) }),
});

/** Lets a real Prometheus scrape the program and evaluate the rules with scaled durations. */
async function testPrometheus(folder: TempFolder, service: ServiceProcess): Promise<void> {
	writeFileSync(folder.file("scaled.yaml"), scaled(readFileSync(RULES, "utf8")));
	const port = await freePort();
	const config = {
		global: { scrape_interval: "1s", evaluation_interval: "1s" },
		rule_files: ["scaled.yaml"],
		scrape_configs: [
			{
				job_name: "conversations",
				authorization: { credentials: SCRAPER },
				static_configs: [{ targets: [new URL(service.http).host] }],
			},
		],
	};
	writeFileSync(folder.file("prometheus.yaml"), stringify(config));
	const prometheus = spawn(
		"prometheus",
		[
			`--config.file=${folder.file("prometheus.yaml")}`,
			`--storage.tsdb.path=${folder.file("data")}`,
			`--web.listen-address=127.0.0.1:${port}`,
			"--log.level=error",
		],
		{ stdio: "inherit" },
	);
	const exited = once(prometheus, "exit");
	const firing = async (): Promise<ReadonlySet<string>> => {
		const answer = await fetch(`http://127.0.0.1:${port}/api/v1/alerts`).catch(() => undefined);
		if (answer?.status !== 200) return new Set();
		const { data } = alertsForm.parse(await answer.json());
		return new Set(data.alerts.filter(({ state }) => state === "firing").map(({ labels }) => labels.alertname));
	};
	const seen = new Set<string>();
	const until = async (
		what: string,
		isDone: (now: ReadonlySet<string>) => boolean | Promise<boolean>,
	): Promise<void> => {
		for (const end = Date.now() + 120_000; ; await delay(200)) {
			const now = await firing();
			for (const alert of now) seen.add(alert);
			if (await isDone(now)) return;
			ok(Date.now() < end, `not in two minutes: ${what}`);
		}
	};
	try {
		await until("Prometheus scrapes the program", async () => {
			const answer = await fetch(`http://127.0.0.1:${port}/api/v1/query?query=up`).catch(() => undefined);
			return answer?.status === 200 && (await answer.text()).includes('"1"]');
		});
		for (let n = 0; n < 40; n += 1) await postWebhook(service, "a-key-that-is-wrong", "{}");
		await until("40 posts with a wrong key raise ConversationsKeyWrong", (now) => now.has("ConversationsKeyWrong"));
		service.signal("SIGTERM");
		await service.exit();
		await until("the end of the program raises ConversationsDown", (now) => now.has("ConversationsDown"));
		ok(!seen.has("ConversationsCostUnusual"), "ConversationsCostUnusual fires in a new deployment");
		console.log(`prometheus: ${[...seen].sort().join(", ")} fired`);
	} finally {
		prometheus.kill("SIGTERM");
		await exited;
	}
}

for (const program of ["promtool", "prometheus"])
	if (spawnSync(program, ["--version"]).error !== undefined) {
		console.error(`${program} is not installed (Debian: apt-get install prometheus)`);
		process.exit(2);
	}
using folder = new TempFolder();
await using service = await ServiceProcess.start(folder.file("conversations.db"), {
	ACCESS_KEYS: `test:${KEY}:ingest+read+forward,prometheus:${SCRAPER}:metrics`,
	ENCRYPTION_KEY: Buffer.alloc(32, 1).toString("base64"),
});
for (const [path, body] of [
	["endpoints", { name: "hook", url: "https://receiver.example/", changes: ["GAP"] }],
	["budgets", { name: "team", amount: 2 }],
] as const) {
	const made = await fetch(`${service.http}/api/v1/${path}`, {
		method: "POST",
		headers: { "X-Access-Token": KEY, "Content-Type": "application/json" },
		body: JSON.stringify(body),
	});
	ok(made.ok);
}
const stats = { usage_to_metrics: { agent: { model_name: "a", accumulated_cost: 1 } } };
ok((await postWebhook(service, KEY, JSON.stringify(record({ stats })))).ok);
testRules(folder, await scrape(service, SCRAPER));
await testPrometheus(folder, service);
