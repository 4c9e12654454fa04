/**
 * Tests traces with Phoenix: `PHOENIX=venv/bin/phoenix npm run test:traces`. It is the program of the package
 * arize-phoenix from PyPI, which is installed elsewhere. The test posts the captured conversations to a service that sends
 * traces to it, and compares what Phoenix shows with what the service shows.
 */
import { deepStrictEqual } from "node:assert";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { ConversationService } from "../gen/conversations/v1/conversation_service_pb.js";
import { ForwardingService } from "../gen/conversations/v1/forwarding_service_pb.js";
import { ScoreService } from "../gen/conversations/v1/score_service_pb.js";
import { TRACES_ENDPOINT as name } from "../src/traces/otlp.ts";
import { clientOf, postWebhook } from "../test/support/clients.ts";
import { postEvents } from "../test/support/event-clients.ts";
import { capturedSequences } from "../test/support/fixtures.ts";
import { freePort } from "../test/support/free-port.ts";
import { KEY, startTestService } from "../test/support/service.ts";
import { TempFolder } from "../test/support/temp.ts";

/** A span as Phoenix shows it. */
interface PhoenixSpan {
	readonly name: string;
	readonly context: { readonly span_id: string };
	readonly span_kind: string;
	readonly attributes: Readonly<Record<string, unknown>>;
	readonly events: readonly { readonly name: string; readonly attributes: Readonly<Record<string, unknown>> }[];
}

/** Minutes in which Phoenix must start, and the traces must arrive. */
const PATIENCE = 5;
const KINDS = { AGENT: "invoke_agent", LLM: "chat", TOOL: "execute_tool" };

const program = process.env.PHOENIX ?? "";
if (program === "") throw new Error("PHOENIX must name the program of arize-phoenix");
using folder = new TempFolder();
const [port, grpcPort] = [await freePort(), await freePort()];
const phoenix = spawn(program, ["serve"], {
	stdio: ["ignore", "ignore", "inherit"],
	env: {
		...{ PATH: process.env.PATH, HOME: folder.path, PHOENIX_WORKING_DIR: folder.path, PHOENIX_HOST: "127.0.0.1" },
		...{ PHOENIX_PORT: String(port), PHOENIX_GRPC_PORT: String(grpcPort), PHOENIX_TELEMETRY_ENABLED: "false" },
	},
});
try {
	await test(`http://127.0.0.1:${port}`);
	console.log("passed");
} finally {
	if (phoenix.exitCode === null) {
		phoenix.kill();
		await once(phoenix, "exit");
	}
}

async function test(url: string): Promise<void> {
	await until(async () => (await fetch(`${url}/healthz`)).ok);
	await using service = await startTestService({
		...{ ACCESS_KEYS: `test:${KEY}:ingest+read+forward+score`, LOG_LEVEL: "silent" },
		...{ TRACES_OTLP_ENDPOINT: `${url}/v1/traces`, TRACES_DELAY_SECONDS: "5", TRACES_CONTENT: "on" },
	});
	const scores = clientOf(ScoreService, service, "connect", KEY);
	for (const { conversationId, posts } of capturedSequences()) {
		for (const { webhook, body } of posts)
			await (webhook === "events" ? postEvents(service, KEY, conversationId, body) : postWebhook(service, KEY, body));
		// Before its runs are sent.
		const value = create(ValueSchema, { kind: { case: "numberValue", value: 0.75 } });
		await scores.setScores({ scores: [{ conversationId, name: "tests_passed", value, comment: "3 of 4" }] });
	}
	const forwarding = clientOf(ForwardingService, service, "connect", KEY);
	await until(async () => {
		const { endpoint } = await forwarding.getEndpoint({ name });
		return endpoint?.lag === 0n && endpoint.waiting === 0n;
	});
	// Phoenix stores spans a moment after it has taken them.
	let spans: readonly PhoenixSpan[] = [];
	await until(async () => {
		const before = spans.length;
		spans = await all<PhoenixSpan>(`${url}/v1/projects/default/spans`);
		await delay(3_000);
		return spans.length > 0 && spans.length === before;
	});

	const conversations = clientOf(ConversationService, service, "connect", KEY);
	const summaries = new Map(
		(await conversations.listConversations({ pageSize: 1000 })).conversations.map(({ summary }) => [
			summary?.id,
			summary,
		]),
	);
	const sessions = await all<{ readonly session_id: string }>(`${url}/v1/projects/default/sessions`);
	const ofSession = Map.groupBy(spans, ({ attributes }) => attributes["session.id"]);
	deepStrictEqual(new Set(sessions.map(({ session_id }) => session_id)), new Set(ofSession.keys()));
	const counts: Record<string, number> = { sessions: sessions.length };
	for (const [id, own] of ofSession) {
		const summary = summaries.get(String(id));
		if (summary === undefined) throw new Error(`there is no conversation ${String(id)}`);
		const sum = (name: string) => own.reduce((all, { attributes }) => all + Number(attributes[name] ?? 0), 0);
		const models = own.filter(({ span_kind }) => span_kind === "LLM");
		if (models.length > 0)
			deepStrictEqual(
				[id, sum("llm.token_count.prompt"), sum("llm.token_count.completion")],
				[id, Number(summary.tokens?.promptTokens), Number(summary.tokens?.completionTokens)],
			);
		// The score of the conversation is an event of one of its runs, and no annotation of Phoenix.
		const evaluations = own.flatMap(({ span_kind, events }) =>
			events.map(({ name, attributes }) => [span_kind, name, attributes["gen_ai.evaluation.name"]].join(" ")),
		);
		counts.evaluations = (counts.evaluations ?? 0) + evaluations.length;
		const given = evaluations.filter((one) => one.endsWith(" tests_passed"));
		deepStrictEqual([id, given], [id, ["AGENT gen_ai.evaluation.result tests_passed"]]);
		const ids = own.map(({ context }) => `span_ids=${context.span_id}`).join("&");
		const annotations = await fetch(`${url}/v1/projects/default/span_annotations?${ids}`);
		deepStrictEqual([annotations.status, JSON.parse(await annotations.text()).data], [200, []]);
		for (const { span_kind: kind, name } of own) {
			counts[kind] = (counts[kind] ?? 0) + 1;
			const operation = Object.entries(KINDS).find(([known]) => known === kind)?.[1];
			deepStrictEqual([kind, name.split(" ")[0]], [kind, operation]);
		}
	}
	deepStrictEqual(Object.keys(counts).sort(), ["AGENT", "LLM", "TOOL", "evaluations", "sessions"]);
	console.log(counts);
}

async function until(condition: () => Promise<boolean>): Promise<void> {
	const end = Date.now() + PATIENCE * 60_000;
	while (!(await condition().catch(() => false))) {
		if (Date.now() > end || phoenix.exitCode !== null) throw new Error("Phoenix or the traces did not come in time");
		await delay(500);
	}
}

/** Returns all entries of a list of Phoenix. */
async function all<Entry>(url: string): Promise<readonly Entry[]> {
	const entries: Entry[] = [];
	for (let cursor: string | null = ""; cursor !== null; ) {
		const response = await fetch(`${url}?limit=1000${cursor === "" ? "" : `&cursor=${encodeURIComponent(cursor)}`}`);
		if (!response.ok) throw new Error(`${url}: ${response.status}`);
		const page: { readonly data: readonly Entry[]; readonly next_cursor: string | null } = JSON.parse(
			await response.text(),
		);
		entries.push(...page.data);
		cursor = page.next_cursor;
	}
	return entries;
}
