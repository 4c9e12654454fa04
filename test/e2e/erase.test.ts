import { randomBytes, randomUUID } from "node:crypto";
import { DatabaseSync } from "node:sqlite";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import { idDigest } from "../../src/store/erasure.ts";
import { sqlOn } from "../store/postgres/databases.ts";
import { ServiceProcess } from "../support/child.ts";
import { clientOf, EVENT_WEBHOOK, postWebhook, readClient } from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { EventStream } from "../support/event-stream.ts";
import { object, record } from "../support/fixtures.ts";
import { LOCK_TIMEOUT } from "../support/lock-timeout.ts";
import { KEY, startTestService, type TestService, testEnvironment } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const [RED, BLUE] = ["key-of-the-red-agents", "key-of-the-blue-agents"];
const ENV = {
	ACCESS_KEYS: `test:${KEY}:ingest+read+erase,red:${RED}:ingest+read@red,blue:${BLUE}:ingest+read+erase+score@blue`,
};
const CANARY = "zanzibar-canary";

type Erasing = Pick<TestService, "http" | "grpc">;

async function erase(service: Erasing, id: string, key: string, query = ""): Promise<[number, unknown]> {
	const response = await fetch(`${service.http}/api/v1/conversations/${id}${query}`, {
		method: "DELETE",
		headers: { "X-Access-Token": key },
	});
	return [response.status, await response.json()];
}

async function post(service: Erasing, members: object, key = KEY): Promise<unknown> {
	const response = await postWebhook(service, key, JSON.stringify(record({ ...members })));
	expect(response.status).toBe(200);
	return await response.json();
}

async function postEvents(
	service: Erasing,
	id: string,
	texts: readonly string[],
	key = KEY,
	members: object = {},
): Promise<void> {
	const events = texts.map((text, n) => ({
		...members,
		id: `${text} ${n}`,
		timestamp: `2026-01-01T00:00:0${n}`,
		source: "user",
		kind: "MessageEvent",
		llm_message: { role: "user", content: [{ type: "text", text }] },
	}));
	const response = await fetch(`${service.http}${EVENT_WEBHOOK}/${id}`, {
		method: "POST",
		headers: { "X-Access-Token": key, "Content-Type": "application/json" },
		body: JSON.stringify(events),
	});
	expect(response.status).toBe(200);
}

test("DELETE erases a conversation, and later posts succeed without being stored", async () => {
	await using service = await startTestService(ENV);
	const [id, other] = [randomUUID(), randomUUID()];
	const times = { created_at: "2026-01-01T00:00:00Z", updated_at: "2026-01-01T00:00:01Z" };
	await post(service, { id, ...times });
	await post(service, { id: other, parent_conversation_id: id, ...times });
	expect((await erase(service, id, RED))[0]).toBe(403);
	expect(await erase(service, id, BLUE)).toEqual(await erase(service, randomUUID(), BLUE));
	expect((await erase(service, "x", KEY))[0]).toBe(400);
	expect((await erase(service, id, KEY, "?with_children=yes"))[0]).toBe(400);
	expect(await erase(service, id, KEY, "?with_children=false")).toEqual([200, { erased: 1 }]);
	expect((await erase(service, id, KEY))[0]).toBe(404);

	const reads = readClient(service, "connect", KEY);
	for (const [conversationId, expected] of [
		["", [other, idDigest(id)]],
		[id, [idDigest(id)]],
	] as const) {
		const { updates } = await reads.listConversationUpdates({ conversationId });
		expect(updates.map((update) => update.conversationId)).toEqual(expected);
	}
	expect((await reads.getConversation({ id: other })).conversation?.parentConversationId).toBeUndefined();
	await expect(reads.getConversation({ id })).rejects.toMatchObject({ code: Code.NotFound });
	const listed = async () => (await reads.listConversations({})).conversations.map(({ summary }) => summary?.id);
	await post(service, { id, ...times });
	await postEvents(service, id, ["late"]);
	expect(await listed()).toEqual([other]);
	await post(service, { id, created_at: "2026-01-01T00:00:02Z", updated_at: "2026-01-01T00:00:03Z" });
	expect(await listed()).toEqual([id, other]);
	const lines = service.log().split("\n");
	const audit = lines.filter((line) => line.includes("conversation_erased")).map((line) => JSON.parse(line));
	expect(audit).toMatchObject([{ digest: idDigest(id), caller: "test" }]);
});

test("over gRPC, a tree and what meets a filter are erased within the owner", async () => {
	await using service = await startTestService(ENV);
	const [root, child, grandchild, foreign] = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];
	await post(service, { id: root }, BLUE);
	await post(service, { id: child, parent_conversation_id: root }, BLUE);
	await post(service, { id: grandchild, parent_conversation_id: child, title: "third" }, BLUE);
	await post(service, { id: foreign, parent_conversation_id: root, title: "third" }, RED);
	const client = clientOf(ConversationEraseService, service, "gRPC", BLUE);
	await expect(client.deleteConversations({})).rejects.toMatchObject({
		...{ code: Code.InvalidArgument, rawMessage: "filter must have at least one condition" },
	});
	const filter = { titleContains: "third" };
	const matching = { erased: 1n, matching: 1n };
	expect(await client.deleteConversations({ filter, dryRun: true })).toMatchObject({ ...matching, ids: [grandchild] });
	expect(await client.deleteConversations({ filter, max: 5 })).toMatchObject({ ...matching, ids: [] });
	expect(await client.deleteConversation({ id: root, withChildren: true })).toMatchObject({ erased: 2n });
	const { conversations } = await readClient(service, "gRPC", KEY).listConversations({});
	expect(conversations.map(({ summary }) => summary?.id)).toEqual([foreign]);
});

test.each(ENGINES)(
	"with $engine, a watch gets an erasure, whatever it filters, and also when it resumes",
	async ({ open }) => {
		await using databases = await open();
		await using service = await startTestService({ ...ENV, ...(await databases.create()) });
		const [id, other] = [randomUUID(), randomUUID()];
		const erased = [idDigest(id), "erased"];
		const running = (n: number) => ({ execution_status: "running", updated_at: `2026-01-01T00:00:0${n}Z` });
		await post(service, { id, ...running(0) }, BLUE);
		await post(service, { id: other, ...running(1) }, BLUE);
		const expected: readonly [key: string, query: string, updates: readonly unknown[]][] = [
			[KEY, "", [erased, [other, "updated"]]],
			[BLUE, "", [erased, [other, "updated"]]],
			[KEY, `conversation_id=${id}`, [erased]],
			[KEY, `conversation_id=${other}`, [[other, "updated"]]],
			[KEY, "origin=posted", [erased, [other, "updated"]]],
			[KEY, "execution_status=finished", [erased]],
			[RED, "", []],
		];
		/** Opens streams after the second update. */
		const openAll = () =>
			Promise.all(
				expected.map(async ([key, query]) => {
					const stream = await EventStream.open(service, key, `/api/v1/updates:watch?${query}`, {
						"Last-Event-ID": "2",
					});
					await stream.heartbeat();
					return stream;
				}),
			);
		const seen = ({ pending }: EventStream) =>
			pending
				.map(({ data }) => object(JSON.parse(data)))
				.map(({ conversation_id, change }) => [conversation_id, change]);
		const before = await openAll();
		expect(before.map(seen)).toEqual(expected.map(() => []));
		expect(await erase(service, id, KEY)).toEqual([200, { erased: 1 }]);
		await post(service, { id: other, ...running(2) }, BLUE);
		const resumed = await openAll();
		expect(resumed.map(seen)).toEqual(expected.map(([, , updates]) => updates));
		for (const [n, [, , updates]] of expected.entries()) {
			const events = (await before[n]?.take(updates.length)) ?? [];
			expect(events.map(({ data }) => object(JSON.parse(data)).conversation_id)).toEqual(
				updates.map((update) => (Array.isArray(update) ? update[0] : undefined)),
			);
		}
		for (const stream of [...before, ...resumed]) stream[Symbol.dispose]();
	},
);

/** Why tables keep rows after an erasure of all conversations. The rows of all others are of conversations. */
const KEPT: Readonly<Record<string, string>> = {
	access_keys: "keys",
	audit: "who did what, with digests of ids",
	claims: "work of processes",
	budgets: "settings that callers chose",
	deliveries: "what endpoints were told, without the conversation",
	endpoints: "addresses",
	erasures: "the markers of erasures, without ids",
	event_times: "the times of blocks of events",
	refusals: "numbers of refused posts of senders",
	removals: "positions",
	schema_versions: "versions",
	search_progress: "how far the index comes",
	senders: "totals of senders",
	state: "the state of the database",
	usage_conversations: "the amounts of usage, with a random id",
	usage_days: "the days of usage, with a random id",
	usage_ledger: "the amounts of usage, with a random id",
	usage_sums: "sums of usage",
	views: "positions",
};

/** Reads the database beside the service. */
interface Rows {
	/** Returns the texts of the rows of each table. */
	all(): Promise<Readonly<Record<string, readonly string[]>>>;
	run(sql: string): Promise<void>;
}

function sqliteRows(path: string): Rows {
	return {
		async all() {
			using database = new DatabaseSync(path, { readOnly: true, readBigInts: true, ...LOCK_TIMEOUT });
			const names = database
				.prepare("SELECT name FROM pragma_table_list WHERE type IN ('table', 'virtual') AND schema = 'main'")
				.all()
				.map(({ name }) => String(name));
			const texts = (name: string) => {
				const rows = database.prepare(`SELECT * FROM ${name}`).all();
				return rows.map((row) => Object.values(row).map(textOf).join(" "));
			};
			return Object.fromEntries(names.filter((name) => !name.startsWith("sqlite_")).map((name) => [name, texts(name)]));
		},
		async run(sql) {
			using database = new DatabaseSync(path, LOCK_TIMEOUT);
			database.exec(sql);
		},
	};
}

function postgresRows(url: string): Rows {
	return {
		async all() {
			const tables = await sqlOn(
				url,
				"SELECT table_name FROM information_schema.tables WHERE table_schema = 'conversation_updates' AND table_type = 'BASE TABLE'",
			);
			const texts = async (name: string) =>
				(await sqlOn(url, `SELECT t::text AS row FROM conversation_updates.${name} t`)).map(({ row }) => textOf(row));
			const all: [string, readonly string[]][] = [];
			for (const { table_name: name } of tables) all.push([String(name), await texts(String(name))]);
			return Object.fromEntries(all);
		},
		run: async (sql) => void (await sqlOn(url, sql.replace("INTO ", "INTO conversation_updates."))),
	};
}

/** PostgreSQL shows bytes in hexadecimal digits. */
function textOf(value: unknown): string {
	if (value instanceof Uint8Array) return Buffer.from(value).toString("latin1");
	return String(value).replace(/\\x([0-9a-f]+)/g, (_, hex: string) => Buffer.from(hex, "hex").toString("latin1"));
}

async function read(service: Erasing, path: string): Promise<[number, unknown]> {
	const response = await fetch(`${service.http}/api/v1/${path}`, { headers: { "X-Access-Token": KEY } });
	return [response.status, await response.json()];
}

test.each(ENGINES)("with $engine, an erasure leaves nothing of a conversation in any table", async ({ open }) => {
	await using databases = await open();
	const { DATABASE_URL: url } = await databases.create();
	const key = randomBytes(32).toString("base64");
	await using service = await startTestService({ ...ENV, DATABASE_URL: url, ENCRYPTION_KEY: key });
	const rows = url.startsWith("sqlite:") ? sqliteRows(url.slice("sqlite:".length)) : postgresRows(url);
	const id = randomUUID();
	const token_usages = [{ model: "m", prompt_tokens: 1, response_id: `${CANARY} response` }];
	const usage_to_metrics = { agent: { model_name: "m", accumulated_cost: 1, token_usages } };
	const body = (n: number) => ({
		...{ id, title: `${CANARY} ${n}`, tags: { canarykey: `${CANARY}tag` }, stats: { usage_to_metrics } },
		...{
			created_at: "2026-01-01T00:00:00Z",
			updated_at: `2026-01-01T00:00:0${n}Z`,
			sub_conversation_ids: [randomUUID()],
		},
	});
	// Only the key of an owner fills the logs of owners.
	for (let n = 0; n < 3; n++) {
		await post(service, body(n), BLUE);
		await postEvents(service, id, [`${CANARY} event ${n}`], BLUE, { parent_id: `${CANARY} missing ${n}` });
	}
	await postWebhook(service, BLUE, JSON.stringify({ id, title: 5, canary: CANARY }));
	await rows.run(`INSERT INTO pruned (log, conversation_id, through, removal) VALUES ('events', '${id}', 0, 0)`);
	await rows.run(`INSERT INTO deliveries
		(endpoint_id, id, number, change, conversation_id, state, created_at, attempts, data, tries)
		VALUES ('e', 'e_1', 1, 'TEST', '${id}', 'waiting', 0, 0, '{"title":"${CANARY}"}', '[{"answer":"${CANARY}"}]')`);
	await rows.run(`INSERT INTO notices (id, conversation_id, noticed_at) VALUES ('${id} gap', '${id}', 0)`);
	const scores = [{ conversation_id: id, name: "thumbs", value: true, comment: CANARY }];
	const scored = await fetch(`${service.http}/api/v1/scores`, {
		method: "POST",
		headers: { "X-Access-Token": BLUE, "Content-Type": "application/json" },
		body: JSON.stringify({ scores }),
	});
	expect(scored.status).toBe(200);
	const search = (query: string) => read(service, `search?${new URLSearchParams({ query })}`);
	await expect.poll(async () => (await rows.all()).refused_posts?.length).toBe(1);
	await expect
		.poll(() => search("zanzibar"))
		.toMatchObject([200, { hits: [{ summary: { id }, places: [{}, {}, {}] }] }]);

	const isShadow = (name: string) => name.endsWith("_config") || name.endsWith("_data") || name.endsWith("_idx");
	const isExpected = (name: string) => !(name in KEPT) && !isShadow(name) && name !== "changed_conversations";
	const tables = async () => Object.entries(await rows.all()).filter(([name]) => isExpected(name));
	const empty = async () => (await tables()).flatMap(([name, texts]) => (texts.length === 0 ? [name] : []));
	// The views and the index of search have followed before an erasure.
	await expect.poll(empty).toEqual([]);
	const filled = await tables();
	expect(filled.length).toBeGreaterThan(12);
	expect(await erase(service, id, BLUE)).toEqual([200, { erased: 1 }]);
	const after = await rows.all();
	// A table that is not empty must be emptied by the erasure, or be added to KEPT with the reason.
	expect(filled.flatMap(([name]) => (after[name]?.length === 0 ? [] : [name]))).toEqual([]);
	const own = Object.entries(after).flatMap(([name, texts]) =>
		texts.some((text) => text.includes(id) || text.includes(CANARY)) ? [name] : [],
	);
	expect(own).toEqual([]);
	expect(await search("zanzibar")).toMatchObject([200, { hits: [] }]);
	expect((await read(service, `conversations/${id}`))[0]).toBe(404);
	expect((await read(service, `conversations/${id}/gaps`))[0]).toBe(404);
});

test("the command erases by age in steps after a dry run, by ids, and a tree, also beside a running service", async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const run = (...args: readonly string[]) => ServiceProcess.run(testEnvironment(database), "erase", ...args);
	const [id, child, ...old] = Array.from({ length: 122 }, () => randomUUID());
	if (id === undefined || child === undefined) throw new Error("there are two");
	{
		await using service = await ServiceProcess.start(database);
		await post(service, { id, execution_status: "finished", updated_at: new Date().toISOString() });
		await post(service, { id: child, parent_conversation_id: id, updated_at: "2026-01-01T00:00:00Z" });
		const finished = { execution_status: "finished", updated_at: "2026-01-01T00:00:00Z" };
		await Promise.all(old.map((one) => post(service, { id: one, ...finished })));
		const policy = ["--older-than", "90d", "--status", "finished"];
		const { code, stdout } = await run(...policy);
		const lines = stdout.split("\n");
		expect([code, lines.slice(0, -2).toSorted()]).toEqual([0, old.toSorted()]);
		expect(lines.slice(-2)).toEqual(["120 conversations would be erased. Add --execute to erase them.", ""]);
		expect(await run(...policy, "--execute")).toEqual({
			code: 0,
			stdout: "120 conversations were erased.\n",
			stderr: "80 % of 120 conversations are erased\n100 % of 120 conversations are erased\n",
		});
		expect(await service.logged(({ event }) => event === "conversation_erased")).toMatchObject({ caller: "command" });
	}
	expect(await run(old[0] ?? "", "--with-children", id)).toMatchObject({
		...{ code: 1, stderr: expect.stringContaining(`there is no conversation ${old[0]}; 2 conversations were erased.`) },
	});
	expect(await run(child)).toMatchObject({
		...{ code: 1, stderr: expect.stringContaining(`there is no conversation ${child}; 0 conversations were erased.`) },
	});
	expect((await run()).code).toBe(2);
});
