import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect } from "node:http2";
import { join } from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import { parser as promql } from "@prometheus-io/lezer-promql";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { z } from "zod";
import { BudgetService } from "../../gen/conversations/v1/budget_service_pb.js";
import {
	ConversationIngestService,
	IngestConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import {
	ConversationService,
	WatchConversationUpdatesRequestSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { ForwardingService } from "../../gen/conversations/v1/forwarding_service_pb.js";
import { ServiceProcess } from "../support/child.ts";
import { clientOf, GrpcClient, postWebhook, WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { callRaw, RAW_FORMS } from "../support/raw-rpc.ts";
import { ingestRequest } from "../support/record-message.ts";
import { countsOf, familyOf, type Scraped, scrape } from "../support/scrape.ts";
import { KEY, startTestService } from "../support/service.ts";
import { ROOT } from "../support/start-command.ts";
import { TempFolder } from "../support/temp.ts";

const CANARY = "canary-of-metrics";
const SCRAPER = "key-of-prometheus-itself";
const { ingestConversation } = ConversationIngestService.method;
const { getConversation, watchConversationUpdates } = ConversationService.method;

let folder: TempFolder;
let service: ServiceProcess;
/** The first scrape, before any other request. */
let fresh: Scraped;

beforeAll(async () => {
	folder = new TempFolder();
	const ACCESS_KEYS = `test:${KEY}:ingest+read+secrets,prometheus:${SCRAPER}:metrics`;
	{
		await using before = await startTestService({
			ACCESS_KEYS: `test:${KEY}:forward`,
			DATABASE_URL: `sqlite:${folder.file("conversations.db")}`,
			ENCRYPTION_KEY: Buffer.alloc(32, 1).toString("base64"),
		});
		const asked = { name: "hook", url: "https://receiver.example/", changes: ["GAP"] };
		await clientOf(ForwardingService, before, "connect", KEY).createEndpoint(asked);
		await clientOf(BudgetService, before, "connect", KEY).createBudget({ name: "team", amount: 2 });
	}
	service = await ServiceProcess.start(folder.file("conversations.db"), {
		ACCESS_KEYS,
		// Nothing listens there. The figures of an agent server are shown from the start.
		RECONCILE_AGENT_SERVERS: "test=http://127.0.0.1:9",
	});
	fresh = await scrape(service, SCRAPER);
});
afterAll(async () => {
	await service[Symbol.asyncDispose]();
	folder[Symbol.dispose]();
});

/** Returns the values of a counter, without those of the scrapes, whose number depends on the polling. */
function counted(scraped: Scraped, name: string): Readonly<Record<string, number>> {
	const counts = Object.entries(countsOf(scraped, name));
	return Object.fromEntries(counts.filter(([labels]) => !labels.includes("/metrics")));
}

/** Expects counts, and waits for them: a client gets its response a little before the request is counted. */
function expectCounts(name: string) {
	return expect.poll(async () => counted(await scrape(service, SCRAPER), name), { timeout: 30_000 });
}

test("only a key with the scope metrics reads metrics, also as a bearer token", async () => {
	const status = async (headers: Record<string, string>) =>
		(await fetch(`${service.http}/metrics`, { headers })).status;
	expect(await status({})).toBe(401);
	expect(await status({ "X-Access-Token": KEY })).toBe(403);
	expect(await status({ Authorization: `Bearer ${CANARY}` })).toBe(401);
	expect(await status({ Authorization: `Bearer ${SCRAPER}` })).toBe(200);
	const answer = await fetch(`${service.http}/metrics`, { headers: { "X-Access-Token": SCRAPER } });
	expect(answer.headers.get("Content-Type")).toBe("text/plain; version=0.0.4; charset=utf-8");
	const read = await fetch(`${service.http}/api/v1/conversations`, { headers: { Authorization: `Bearer ${SCRAPER}` } });
	expect(read.status).toBe(403);
	await expectCounts("http_server_request_duration_seconds_count").toEqual({
		"http_request_method=GET http_route=/api/v1/conversations http_response_status_code=403 error_type=permission_denied": 1,
	});
});

test("requests are counted by transport, route and outcome, without labels that clients make up", async () => {
	const json = record({ stats: { usage_to_metrics: { agent: { model_name: "a", accumulated_cost: 1 } } } });
	const post = async (body: string, path = WEBHOOK, key = KEY) =>
		(await postWebhook(service, key, body, {}, path)).status;
	expect(await post(JSON.stringify(json))).toBe(200);
	expect(await post(JSON.stringify(json))).toBe(200);
	expect(await post(JSON.stringify({ ...json, max_iterations: 0, workspace: undefined, [CANARY]: 1 }))).toBe(422);
	expect(await post("{}", WEBHOOK, `${CANARY}-key`)).toBe(401);
	expect(await post("{}", `/${CANARY}`)).toBe(404);
	expect(await post("[]", `/api/v1/webhooks/events/${json.id}`)).toBe(200);
	const method = "PROPFIND";
	expect((await fetch(service.http + WEBHOOK, { method, headers: { "X-Access-Token": KEY } })).status).toBe(405);
	expect((await fetch(`${service.http}/healthz?${CANARY}`)).status).toBe(200);
	const session = connect(service.http);
	const stream = session.request({ ":path": "/healthz" }).resume().end();
	await once(stream, "close");
	session.destroy();

	const http = "http_server_request_duration_seconds_count";
	const webhook = `http_request_method=POST http_route=${WEBHOOK}`;
	await expectCounts(http).toEqual({
		"http_request_method=GET http_route=/api/v1/conversations http_response_status_code=403 error_type=permission_denied": 1,
		[`${webhook} http_response_status_code=200`]: 2,
		[`${webhook} http_response_status_code=422 error_type=invalid_record`]: 1,
		[`${webhook} http_response_status_code=401 error_type=unauthenticated`]: 1,
		"http_request_method=POST http_response_status_code=404 error_type=not_found": 1,
		"http_request_method=POST http_route=/api/v1/webhooks/events/{id} http_response_status_code=200": 1,
		[`http_request_method=_OTHER http_route=${WEBHOOK} http_response_status_code=405 error_type=method_not_allowed`]: 1,
		"http_request_method=GET http_route=/healthz http_response_status_code=200": 2,
	});
	await expectCounts("conversations_request_size_bytes_count").toEqual({
		[`transport=http route=${WEBHOOK}`]: 3,
		"transport=http route=/api/v1/webhooks/events/{id}": 1,
	});
	await expectCounts("conversations_request_violations_total").toEqual({ "type=missing": 1, "type=greater_than": 1 });
});

test("RPCs are counted by protocol, method and error, and each commit with its size", async () => {
	const before = await scrape(service, SCRAPER);
	const message = Buffer.from(toBinary(IngestConversationRequestSchema, ingestRequest(record({ title: "other" }))));
	const forms = RAW_FORMS.filter((form) => form !== "Connect JSON");
	for (const form of forms) await callRaw(service, form, ingestConversation, message, KEY);
	for (const form of RAW_FORMS)
		await callRaw(service, form, getConversation, form === "Connect JSON" ? `{"id":"${CANARY}"}` : "", KEY);
	for (const form of RAW_FORMS) await callRaw(service, form, getConversation, "", `${CANARY}-key`);
	const unknown = { ...getConversation, name: CANARY };
	await callRaw(service, "gRPC", unknown, "", KEY);

	const ingest = "rpc_method=conversations.v1.ConversationIngestService/IngestConversation";
	const get = "rpc_method=conversations.v1.ConversationService/GetConversation";
	const rpcs = (system: string, connects = 1) => ({
		[`rpc_system_name=${system} ${ingest}`]: 1,
		[`rpc_system_name=${system} ${get} error_type=invalid_argument`]: connects,
		[`rpc_system_name=${system} ${get} error_type=unauthenticated`]: connects,
	});
	await expectCounts("rpc_server_call_duration_seconds_count").toEqual({
		...rpcs("connectrpc", 2),
		...rpcs("grpc_web"),
		...rpcs("grpc"),
		"rpc_system_name=grpc rpc_method=_OTHER error_type=not_found": 1,
	});
	// Two of those before had no key or a wrong one, and another one at the webhook.
	await expectCounts("conversations_requests_unauthenticated_total").toEqual({
		"transport=http": 3,
		"transport=connect": 2,
		"transport=grpc-web": 1,
		"transport=grpc": 1,
	});
	const after = await scrape(service, SCRAPER);
	const commits = (scraped: Scraped) =>
		[
			"conversations_commit_size_sum",
			"conversations_commit_size_count",
			"conversations_commit_duration_seconds_count",
		].map((name) => countsOf(scraped, name)[""] ?? 0);
	const earlier = commits(before);
	expect(commits(after).map((count, n) => count - (earlier[n] ?? 0))).toEqual([3, 3, 3]);
});

test("a watcher is counted while it watches, and its call is counted when it ends", async () => {
	using client = new GrpcClient(service, KEY);
	const stream = client.stream(watchConversationUpdates, create(WatchConversationUpdatesRequestSchema, {}));
	stream.on("error", () => undefined);
	await new Promise((resolve) => stream.once("data", resolve));
	await expectCounts("conversations_watchers").toEqual({ "log=updates": 1, "log=events": 0 });
	await expectCounts("conversations_watch_lag").toEqual({ "log=updates": 0, "log=events": 0 });
	await expectCounts("conversations_requests_active").toEqual({ "listener=http": 1, "listener=grpc": 1 });
	const idle = { "work=ingest": 0, "work=read": 0, "work=document": 0, "work=keyless": 0 };
	await expectCounts("conversations_admitted_requests").toEqual({ ...idle, "work=watch": 1, "work=metrics": 1 });
	stream.cancel();
	await expectCounts("conversations_watchers").toEqual({ "log=updates": 0, "log=events": 0 });
	const watch = "rpc_method=conversations.v1.ConversationService/WatchConversationUpdates";
	await expectCounts("rpc_server_call_duration_seconds_count").toMatchObject({
		[`rpc_system_name=grpc ${watch} error_type=canceled`]: 1,
	});
});

test("a scrape has conversations, usage, sequences, queues, files, disk space, uptime, readiness and dropped log lines", async () => {
	const scraped = await scrape(service, SCRAPER);
	expect(countsOf(scraped, "conversations_newest_sequence")).toEqual({ "log=updates": 2, "log=events": 0 });
	expect(Object.keys(countsOf(scraped, "conversations_queue_age_seconds"))).toEqual(
		["intake", "large-intake", "writer", "reader", "search"].map((thread) => `thread=${thread}`),
	);
	const sizes = countsOf(scraped, "conversations_database_size_bytes");
	expect(Object.keys(sizes)).toEqual(["file=database", "file=write-ahead-log"]);
	for (const size of Object.values(sizes)) expect(size).toBeGreaterThan(4096);
	for (const name of ["conversations_disk_available_bytes", "conversations_disk_size_bytes", "process_uptime_seconds"])
		expect(countsOf(scraped, name)[""]).toBeGreaterThan(0);
	expect(countsOf(scraped, "conversations_ready")).toEqual({ "": 1 });
	expect(countsOf(scraped, "conversations_by_status")).toEqual({ "status=idle": 2 });
	for (const name of ["silent", "unheard", "senders_silent"])
		expect(countsOf(scraped, `conversations_${name}`)).toEqual({ "": 0 });
	expect(countsOf(scraped, "conversations_with_gaps")).toEqual({ "age=lasting": 0, "age=recent": 0 });
	expect(countsOf(scraped, "conversations_updates_accepted_total")).toMatchObject({ "change=started": 2 });
	expect(countsOf(scraped, "conversations_usage_cost_total")).toEqual({ "model=a": 1 });
	expect(countsOf(scraped, "conversations_log_dropped_lines_total")).toEqual({ "": 0 });
});

test("a scrape has no key, no text of a client, no path of the database and no label value over 80 characters", async () => {
	const { text, samples } = await scrape(service, SCRAPER);
	for (const secret of [CANARY, KEY, SCRAPER, folder.path]) expect(text).not.toContain(secret);
	const values = new Set(samples.flatMap(({ labels }) => Object.values(labels)));
	expect([...values].filter((value) => value.length > 80)).toEqual([]);
});

/** Returns the metrics of a scrape by name, each with its type, all of its labels and its description. */
async function metricsOf(): Promise<Map<string, { type: string; labels: string[]; description: string }>> {
	const scraped = await scrape(service, SCRAPER);
	const descriptions = new Map(
		Array.from(scraped.text.matchAll(/^# HELP (\w+) (.*)$/gm), ([, name = "", text = ""]) => [name, text]),
	);
	const found = new Map<string, { type: string; labels: string[]; description: string }>();
	for (const [name, type] of scraped.types) {
		const own = scraped.samples.filter((sample) => familyOf(scraped, sample) === name);
		const labels = new Set(own.flatMap((sample) => Object.keys(sample.labels)));
		found.set(name, {
			type,
			labels: [...labels].filter((label) => label !== "le").sort(),
			description: descriptions.get(name) ?? "",
		});
	}
	return found;
}

test("the table in docs/monitoring.md has all metrics of the service as a scrape describes them", async () => {
	const text = readFileSync(join(ROOT, "docs/monitoring.md"), "utf8");
	const [, table = ""] = /\| metric \| type \| labels \| meaning \|\n\|[-|]+\n((?:\|.*\n)+)/.exec(text) ?? [];
	// Those of the process have the names and meanings of OpenTelemetry.
	const own = [...(await metricsOf())].filter(([name]) => !/^(process_|v8js_|nodejs_|target_info$)/.test(name));
	const expected = own.map(([name, { type, labels, description }]) => {
		const named = labels.map((label) => `\`${label}\``).join(", ");
		return `| \`${name}\` | ${type} | ${named === "" ? "" : `${named} `}| ${description} |`;
	});
	expect(table.trim().split("\n").sort()).toEqual(expected.sort());
});

/** Returns the names of metrics in an expression. @throws Error when it is not PromQL */
function namesIn(expression: string): string[] {
	// Grafana replaces this variable by a duration.
	const query = expression.replaceAll("$__rate_interval", "5m");
	const names: string[] = [];
	promql.parse(query).iterate({
		enter: ({ type, from, to }) => {
			if (type.isError) throw new Error(`not PromQL: ${query}`);
			if (type.name === "Identifier") names.push(query.slice(from, to));
		},
	});
	return names;
}

const dashboardForm = z.object({
	panels: z
		.array(
			z.object({
				id: z.int(),
				title: z.string().min(1),
				description: z.string().min(1),
				targets: z.array(z.object({ expr: z.string(), legendFormat: z.string() })).min(1),
			}),
		)
		.min(1),
});
const alertsForm = z.strictObject({
	groups: z.array(
		z.strictObject({
			name: z.string(),
			rules: z.array(
				z.strictObject({
					alert: z.string().regex(/^Conversations\w+$/),
					expr: z.string(),
					for: z.string().regex(/^\d+[smh]$/),
					labels: z.strictObject({ severity: z.enum(["warning", "critical"]) }),
					annotations: z.strictObject({ summary: z.string(), description: z.string() }),
				}),
			),
		}),
	),
});

describe("deploy/", () => {
	const dashboard = dashboardForm.parse(JSON.parse(readFileSync(join(ROOT, "deploy/grafana-dashboard.json"), "utf8")));
	const alerts = alertsForm.parse(parse(readFileSync(join(ROOT, "deploy/prometheus-alerts.yaml"), "utf8")));
	const expressions = [
		...dashboard.panels.flatMap(({ title, targets }) => targets.map(({ expr }) => [title, expr] as const)),
		...alerts.groups.flatMap(({ rules }) => rules.map(({ alert, expr }) => [alert, expr] as const)),
	];

	test.each(expressions)("%s uses only existing metrics and labels", async (_, expression) => {
		// Prometheus itself makes the metric `up`, for each target.
		const metrics = (await metricsOf()).set("up", { type: "gauge", labels: [], description: "" });
		const names = namesIn(expression);
		expect(names).not.toEqual([]);
		const familyNamed = (name: string) => metrics.get(name) ?? metrics.get(name.replace(/_(?:bucket|sum|count)$/, ""));
		expect(names.filter((name) => familyNamed(name) === undefined)).toEqual([]);
		const known = new Set(names.flatMap((name) => familyNamed(name)?.labels ?? []));
		const asked = [...expression.matchAll(/([a-z_]+)\s*(?:=~|!~|!=|=)\s*"/g)].map(([, label = ""]) => label);
		const grouped = [...expression.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list = ""]) => list.split(/,\s*/));
		expect(
			[...asked, ...grouped].filter((label) => !["le", "job", "instance"].includes(label) && !known.has(label)),
		).toEqual([]);
	});

	// In the first value of a series Prometheus sees no increase.
	test("the counters of alerts are 0 in the first scrape, with the labels that the alerts select", () => {
		// The durations of commits, of which a quantile is taken, and the models begin with the first one.
		const later = new Set(["conversations_commit_duration_seconds_bucket", "conversations_usage_cost_total"]);
		const selected = alerts.groups
			.flatMap(({ rules }) => rules)
			.flatMap(({ expr }) => [...expr.matchAll(/\b(?:rate|increase)\((\w+)(?:\{([^}]*)\})?\[/g)])
			.filter(([, name = ""]) => !later.has(name));
		expect(new Set(selected.map(([, name]) => name))).toEqual(
			new Set([
				"conversations_requests_ended_total",
				"conversations_requests_unauthenticated_total",
				"conversations_log_dropped_lines_total",
				"conversations_endpoint_lost_total",
			]),
		);
		for (const [whole, name, matchers = ""] of selected) {
			const tests = [...matchers.matchAll(/(\w+)(=~|!=|=)"([^"]*)"/g)];
			const isSelected = (labels: Readonly<Record<string, string>>) =>
				tests.every(([, label = "", operator, value = ""]) => {
					const isSame = new RegExp(`^(?:${value})$`).test(labels[label] ?? "");
					return operator === "!=" ? !isSame : isSame;
				});
			const found = fresh.samples.filter((sample) => sample.name === name && isSelected(sample.labels));
			expect([whole, new Set(found.map(({ value }) => value))]).toEqual([whole, new Set([0])]);
		}
	});

	test("the alert ConversationsDown names the job of the documented scrape configuration", () => {
		const documentation = readFileSync(join(ROOT, "docs/monitoring.md"), "utf8");
		const [, job = ""] = /^scrape_configs:\n {2}- job_name: (\w+)$/m.exec(documentation) ?? [];
		const down = alerts.groups.flatMap(({ rules }) => rules).find(({ alert }) => alert === "ConversationsDown");
		expect(down?.expr).toBe(`up{job="${job}"} == 0`);
	});

	test("the names of alerts and the ids of panels are unique", () => {
		const names = alerts.groups.flatMap(({ rules }) => rules.map(({ alert }) => alert));
		expect(new Set(names).size).toBe(names.length);
		const ids = dashboard.panels.map(({ id }) => id);
		expect(new Set(ids).size).toBe(ids.length);
	});
});
