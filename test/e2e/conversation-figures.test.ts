import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { sqlOn } from "../store/postgres/databases.ts";
import { postWebhook } from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { postEvents } from "../support/event-clients.ts";
import { record } from "../support/fixtures.ts";
import { LOCK_TIMEOUT } from "../support/lock-timeout.ts";
import { countsOf, scrape } from "../support/scrape.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const SCRAPER = "key-of-prometheus-itself";
const ACCESS_KEYS = `test:${KEY}:ingest+read,prometheus:${SCRAPER}:metrics`;
const HOUR = 3_600_000;

async function runSql(url: string, sql: (prefix: string) => string): Promise<void> {
	if (!url.startsWith("sqlite:")) return void (await sqlOn(url, sql("conversation_updates.")));
	using database = new DatabaseSync(url.slice("sqlite:".length), LOCK_TIMEOUT);
	database.exec(sql(""));
}

/** Returns stats of one usage id whose calls all cost the same. */
function stats(model: string, calls: number) {
	return {
		usage_to_metrics: {
			agent: {
				model_name: model,
				accumulated_cost: 0.5 * calls,
				accumulated_token_usage: { model, prompt_tokens: 100 * calls, completion_tokens: 10 * calls },
				costs: Array.from({ length: calls }, (_, n) => ({ model, cost: 0.5, timestamp: 1_790_000_000 + n })),
				token_usages: Array.from({ length: calls }, (_, n) => ({
					...{ model, prompt_tokens: 100, completion_tokens: 10, response_id: `${model} ${n}` },
				})),
			},
		},
	};
}

test.each(ENGINES)("metrics show conversations, silence, updates and usage, with $engine", async ({ open }) => {
	await using databases = await open();
	const env = await databases.create();
	await using service: TestService = await startTestService({ ...env, ACCESS_KEYS });
	const anHourAgo = new Date(Date.now() - HOUR).toISOString();
	const post = async (members: Parameters<typeof record>[0]) => {
		const sent = record(members);
		const { status } = await postWebhook(service, KEY, JSON.stringify(sent));
		expect(status).toBe(200);
		return sent;
	};
	const of = async (...names: string[]) => {
		const found = await scrape(service, SCRAPER);
		return names.map((name) => countsOf(found, `conversations_${name}`));
	};
	const silent = await post({ execution_status: "running", updated_at: anHourAgo, stats: stats("a", 3) });
	await post({ execution_status: "running", updated_at: new Date().toISOString(), stats: stats("b", 1) });
	await post({ execution_status: "finished", updated_at: anHourAgo, stats: {} });
	expect(await of("by_status", "silent", "senders_silent")).toEqual([
		{ "status=running": 2, "status=finished": 1 },
		{ "": 1 },
		{ "": 0 },
	]);
	expect(await of("usage_cost_total", "usage_calls_total", "usage_tokens_total")).toEqual([
		{ "model=a": 1.5, "model=b": 0.5 },
		{ "model=a": 3, "model=b": 1 },
		Object.fromEntries(
			["prompt", "completion", "cache_read", "cache_write", "reasoning"].flatMap((kind, n) => [
				[`kind=${kind} model=a`, [300, 30][n] ?? 0],
				[`kind=${kind} model=b`, [100, 10][n] ?? 0],
			]),
		),
	]);

	// A repeated post is no update. Events that set a status make one.
	await postWebhook(service, KEY, JSON.stringify(silent));
	const event = {
		...{ id: "status", kind: "ConversationStateUpdateEvent", source: "environment" },
		...{ timestamp: new Date().toISOString(), key: "execution_status", value: "paused" },
	};
	expect((await postEvents(service, KEY, String(silent.id), JSON.stringify([event]))).status).toBe(200);
	const [accepted] = await of("updates_accepted_total");
	expect(Object.fromEntries(Object.entries(accepted ?? {}).filter(([, count]) => count > 0))).toEqual({
		"change=started": 3,
		"change=paused": 1,
	});
	expect(await of("by_status", "silent")).toEqual([
		{ "status=running": 1, "status=finished": 1, "status=paused": 1 },
		{ "": 0 },
	]);

	// Usage that is taken back does not lower the counters. They go on when the sum has passed them.
	const later = (calls: number, minutes: number) =>
		post({
			...{ id: String(silent.id), execution_status: "running", stats: stats("a", calls) },
			updated_at: new Date(Date.now() - HOUR + minutes * 60_000).toISOString(),
		});
	await later(1, 1);
	expect(await of("usage_cost_total")).toEqual([{ "model=a": 1.5, "model=b": 0.5 }]);
	await later(5, 2);
	expect(await of("usage_cost_total")).toEqual([{ "model=a": 2.5, "model=b": 0.5 }]);

	// The repeated post is stored with the next ones or at the end, and would be the last one of the sender.
	await service.stop();
	const minutesAgo = (minutes: number) => (Date.now() - minutes * 60_000) * 1000;
	await runSql(
		env.DATABASE_URL,
		(prefix) =>
			`UPDATE ${prefix}senders SET first_post_at = ${minutesAgo(40)}, last_post_at = ${minutesAgo(30)}, posts = 100`,
	);
	await using again = await service.restart();
	expect(countsOf(await scrape(again, SCRAPER), "conversations_senders_silent")).toEqual({ "": 1 });
});

test.each(ENGINES)(
	"running conversations count as unheard while their sender posts others, with $engine",
	async (of) => {
		const [red, quiet] = ["key-of-the-sender-of-team-red", "key-of-a-sender-that-is-away"];
		const keys = [ACCESS_KEYS, `red:${red}:ingest@red`, `quiet:${quiet}:ingest@red`].join();
		await using databases = await of.open();
		const env = await databases.create();
		await using service = await startTestService({ ...env, ACCESS_KEYS: keys });
		const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000).toISOString();
		const post = async (key: string, execution_status: string, minutes: number) => {
			const sent = record({ execution_status, updated_at: minutesAgo(minutes) });
			expect((await postWebhook(service, key, JSON.stringify(sent))).status).toBe(200);
			return String(sent.id);
		};
		const report = async (key: string, id: string, members: { readonly key: string; readonly value: string }) => {
			const event = { id: members.key, kind: "ConversationStateUpdateEvent", source: "environment", ...members };
			const body = JSON.stringify([{ ...event, timestamp: minutesAgo(0) }]);
			expect((await postEvents(service, key, id, body)).status).toBe(200);
		};
		const unheard = async () => countsOf(await scrape(service, SCRAPER), "conversations_unheard");
		expect(await unheard()).toEqual({ "": 0 });

		await post(quiet, "running", 20);
		await runSql(
			env.DATABASE_URL,
			(prefix) => `UPDATE ${prefix}senders SET last_post_at = ${(Date.now() - HOUR) * 1000}`,
		);
		await post(KEY, "running", 5);
		await post(KEY, "waiting_for_confirmation", 20);
		await post(KEY, "finished", 20);
		expect(await unheard()).toEqual({ "": 0 });
		const without = await post(KEY, "running", 11);
		await post(red, "running", 0);
		const owned = await post(red, "running", 20);
		expect(await unheard()).toEqual({ "": 2 });

		await report(KEY, without, { key: "title", value: "It runs on" });
		expect(await unheard()).toEqual({ "": 1 });
		await report(red, owned, { key: "execution_status", value: "finished" });
		expect(await unheard()).toEqual({ "": 0 });
		await post(quiet, "finished", 0);
		expect(await unheard()).toEqual({ "": 1 });
	},
);
