import { randomUUID } from "node:crypto";
import { create, type JsonObject } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import pg from "pg";
import { expect, test } from "vitest";
import { ConversationIdsSchema } from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import {
	SearchConversationsRequestSchema,
	SearchField,
	SearchOrder,
} from "../../gen/conversations/v1/conversation_search_service_pb.js";
import { lockConversations } from "../../src/store/postgres/transaction.ts";
import { Databases, sqlOn } from "../store/postgres/databases.ts";
import { SECRET_MEMBERS } from "../support/canaries.ts";
import { ServiceProcess } from "../support/child.ts";
import {
	type Endpoints,
	EVENT_WEBHOOK,
	ownerClient,
	PROTOCOLS,
	postWebhook,
	searchClient,
} from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { capturedBatches, object, record } from "../support/fixtures.ts";
import { KEY, startTestService, testEnvironment } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const [RED, BLUE] = ["key-of-the-red-agents", "key-of-the-blue-agents"];
const ENV = {
	ACCESS_KEYS: `test:${KEY}:ingest+read+keys,red:${RED}:ingest+read@red,blue:${BLUE}:ingest+read+keys@blue`,
};

const message = (id: string, text: string): JsonObject => ({
	...{ id, timestamp: "2026-01-01T00:00:01", source: "user", kind: "MessageEvent" },
	llm_message: { role: "user", content: [{ type: "text", text }] },
});

async function post(service: Endpoints, key: string, id: string, members: JsonObject, ...events: JsonObject[]) {
	expect((await postWebhook(service, key, JSON.stringify(record({ id, ...members })))).status).toBe(200);
	if (events.length === 0) return;
	const posted = await postWebhook(service, key, JSON.stringify(events), {}, `${EVENT_WEBHOOK}/${id}`);
	expect(posted.status).toBe(200);
}

/** Returns the response of the JSON search. */
async function search(service: Endpoints, key: string, parameters: Record<string, string>) {
	const response = await fetch(`${service.http}/api/v1/search?${new URLSearchParams(parameters)}`, {
		headers: { "X-Access-Token": key },
	});
	return { status: response.status, json: object(JSON.parse(await response.text())) };
}

/** Waits until a query has hits, and returns the ids of their conversations. */
async function hits(
	service: Endpoints,
	key: string,
	query: string,
	more: Record<string, string> = {},
): Promise<unknown[]> {
	const { json } = await search(service, key, { query, ...more });
	return Array.isArray(json.hits) ? json.hits.map((hit) => object(object(hit).summary).id) : [];
}

const found = (service: Endpoints, query: string, key = KEY) => expect.poll(() => hits(service, key, query));

test.each(ENGINES)(
	"with $engine, a search over JSON has hits, places and the progress of the index",
	async ({ open }) => {
		await using databases = await open();
		await using service = await startTestService({ ...ENV, ...(await databases.create()) });
		const [first, second] = [randomUUID(), randomUUID()];
		await post(
			service,
			KEY,
			first,
			{ title: "Fix the login page" },
			message("a", "Please call read_file on src/app.ts"),
		);
		const action = { kind: "ActionEvent", action: { kind: "TerminalAction", command: "cat src/app.ts" } };
		await post(service, KEY, second, { title: "登录页面" }, { ...message("b", ""), ...action });
		await found(service, "src/app.ts").toEqual([second, first]);
		const { status, json } = await search(service, KEY, { query: "src/app.ts", page_size: "1" });
		expect(status).toBe(200);
		expect(json).toEqual({
			hits: [
				{
					summary: expect.objectContaining({ id: second, title: "登录页面" }),
					places: [{ sequence: 2, field: "command", snippet: "cat src/app.ts", ranges: [{ start: 4, end: 14 }] }],
				},
			],
			next_page_token: expect.stringMatching(/./),
			indexed_through_sequence: 2,
		});
		const next = await search(service, KEY, {
			query: "src/app.ts",
			page_size: "1",
			page_token: String(json.next_page_token),
		});
		expect(next.json).toMatchObject({ hits: [{ summary: { id: first } }], next_page_token: "" });
		await found(service, "LOGIN").toEqual([first]);
		await found(service, "登录").toEqual([second]);
		expect(await hits(service, KEY, '"read file" -cat')).toEqual([first]);
		expect(await hits(service, KEY, "app", { order_by: "relevance", title_contains: "login" })).toEqual([first]);
		expect(await search(service, KEY, { query: '"open' })).toEqual({
			status: 400,
			json: { detail: "query has a quotation mark without a second one" },
		});
		for (const page_size of ["0", "1000", "1001", "2147483647"])
			expect(await hits(service, KEY, "app", { page_size })).toEqual([second, first]);
		expect((await search(service, KEY, { query: "x", page_size: "2147483648" })).json).toEqual({
			detail: "page_size must be at most 2147483647",
		});
		expect((await search(service, KEY, { query: "x", page_size: "-1" })).json).toEqual({
			detail: "page_size must be a whole number, 0 or more",
		});
		const refused = await search(service, KEY, { query: "x", page_token: String(json.next_page_token) });
		expect(refused.json).toEqual({ detail: "page_token is not valid for this list and filter" });
	},
);

test.each(PROTOCOLS)("over %s, SearchConversations returns the same", async (protocol) => {
	await using service = await startTestService(ENV);
	const id = randomUUID();
	await post(service, KEY, id, { title: "Café 😀 crème" }, message("a", "one crème"));
	await found(service, "creme one").toEqual([id]);
	await found(service, "cafe").toEqual([id]);
	const client = searchClient(service, protocol, KEY);
	const page = await client.searchConversations({ query: "creme", orderBy: SearchOrder.RELEVANCE, pageSize: 5 });
	expect(page).toMatchObject({
		hits: [
			{
				summary: { id, title: "Café 😀 crème" },
				places: [
					{ sequence: 0n, field: SearchField.TITLE, snippet: "Café 😀 crème", ranges: [{ start: 7, end: 12 }] },
					{ sequence: 1n, field: SearchField.MESSAGE, snippet: "one crème", ranges: [{ start: 4, end: 9 }] },
				],
			},
		],
		nextPageToken: "",
		indexedThroughSequence: 1n,
	});
	const refusals = [
		client.searchConversations({ query: "" }),
		client.searchConversations({ query: "a", orderBy: create(SearchConversationsRequestSchema).orderBy + 9 }),
		client.searchConversations({ query: "a", filter: { agentKind: "x" } }),
		searchClient(service, protocol, BLUE).rebuildSearchIndex({}),
		searchClient(service, protocol, RED).rebuildSearchIndex({}),
	].map((call) =>
		call.then(
			() => undefined,
			(error: unknown) => [ConnectError.from(error).code, ConnectError.from(error).rawMessage],
		),
	);
	expect(await Promise.all(refusals)).toEqual([
		[Code.InvalidArgument, "query must have a word to look for"],
		[Code.InvalidArgument, "order_by is not a known order"],
		[Code.InvalidArgument, "filter.agent_kind must be ACPAgent or Agent"],
		[Code.PermissionDenied, "A key with an owner cannot rebuild the index"],
		[Code.PermissionDenied, 'The access key or client certificate lacks the scope "keys"'],
	]);
	await client.rebuildSearchIndex({});
	await found(service, "creme").toEqual([id]);
	expect(service.log()).toContain('"event":"search_rebuilt","caller":"test"');
});

test.each(ENGINES)("with $engine, an owner finds what is its own, and what it is assigned", async ({ open }) => {
	await using databases = await open();
	await using service = await startTestService({ ...ENV, ...(await databases.create()) });
	const [red, blue] = [randomUUID(), randomUUID()];
	await post(service, RED, red, { title: "shared word" }, message("a", "shared text"));
	await post(service, BLUE, blue, { title: "shared word" }, message("a", "shared text"));
	await found(service, "shared text").toEqual([blue, red]);
	for (const order_by of ["newest", "relevance"]) {
		expect(await hits(service, RED, "shared", { order_by })).toEqual([red]);
		expect(await hits(service, BLUE, "shared", { order_by })).toEqual([blue]);
		expect(await hits(service, RED, "shared", { order_by, owner: "blue" })).toEqual([]);
	}
	const conversations = { case: "ids", value: create(ConversationIdsSchema, { ids: [blue] }) } as const;
	await ownerClient(service, "connect", KEY).assignOwner({ owner: "red", conversations });
	expect(await hits(service, RED, "shared")).toEqual([blue, red]);
	expect(await hits(service, BLUE, "shared")).toEqual([]);
});

test("a secret is not found, wherever it stands, and neither is it in the index", async () => {
	const canaries = Object.entries(SECRET_MEMBERS).map(([name, members], n) => ({
		name,
		canary: `canary${n}x7`,
		members,
	}));
	await using service = await startTestService(ENV);
	const id = randomUUID();
	for (const { canary, members } of canaries) {
		const json = record({ id: randomUUID(), title: `https://user:${canary}@host/`, ...members(canary) });
		await postWebhook(service, KEY, JSON.stringify(json));
		const text = `clone https://user:${canary}@host/ please`;
		const action = { kind: "ActionEvent", action: { kind: "TerminalAction", command: text, api_key: canary } };
		await post(service, KEY, id, {}, message(`m ${canary}`, text), { ...message(`a ${canary}`, ""), ...action });
	}
	await post(service, KEY, id, {}, message("last", "the last words"));
	await found(service, "last words").toEqual([id]);
	expect(await hits(service, KEY, "clone please")).toEqual([id]);
	for (const { name, canary } of canaries) expect([name, await hits(service, KEY, canary)]).toEqual([name, []]);
	expect(await hits(service, KEY, "canary*")).toEqual([]);
});

test("an event of every captured batch is found by its own words", async () => {
	await using service = await startTestService(ENV);
	const batches = capturedBatches();
	for (const { text } of batches) {
		const id = randomUUID();
		await post(service, KEY, id, {});
		expect((await postWebhook(service, KEY, text, {}, `${EVENT_WEBHOOK}/${id}`)).status).toBe(200);
	}
	const last = randomUUID();
	await post(service, KEY, last, {}, message("last", "everything is indexed"));
	await found(service, "everything").toEqual([last]);
	for (const [query, field] of [
		['"definitely-not-there"', "command"],
		["a.txt", "file_name"],
		['"fake ACP agent"', "finish_message"],
		["MaxIterationsReached", "error"],
		["iterations limit", "error"],
	] as const) {
		const { json } = await search(service, KEY, { query, page_size: "1000" });
		expect([query, JSON.stringify(json)]).toEqual([query, expect.stringContaining(`"field":"${field}"`)]);
	}
});

test("a killed service goes on where it was, and the command lets it begin again", async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const ids = Array.from({ length: 30 }, () => randomUUID());
	for (const part of [ids.slice(0, 15), ids.slice(15)]) {
		await using service = await ServiceProcess.start(database, ENV);
		for (const id of part)
			await post(
				service,
				KEY,
				id,
				{ title: "a title" },
				...Array.from({ length: 20 }, (_, n) => message(`${n}`, `word ${n}`)),
			);
		service.signal("SIGKILL");
		await service.exit();
	}
	await using service = await ServiceProcess.start(database, ENV);
	const all = { page_size: "1000" };
	await expect.poll(() => hits(service, KEY, "word 19", all)).toHaveLength(ids.length);
	expect(new Set(await hits(service, KEY, "word 0", all))).toEqual(new Set(ids));
	await expect.poll(async () => new Set(await hits(service, KEY, "title", all))).toEqual(new Set(ids));
	const { stdout } = await ServiceProcess.run({ ...testEnvironment(database), ...ENV }, "search", "rebuild");
	expect(stdout).toBe("The running service, or else the next one that starts, writes the index of search anew.\n");
	expect(await service.logged(({ event }) => event === "search_rebuilt")).toMatchObject({ caller: "command" });
	await expect.poll(() => hits(service, KEY, "word 19", all)).toHaveLength(ids.length);
});

test("with PostgreSQL, an indexer that is killed in the middle of a step leaves no gap, and the next one tells its progress", async () => {
	await using databases = await Databases.start();
	const url = await databases.createMigrated();
	const env = { ...ENV, DATABASE_URL: url };
	const [first, second, count] = [randomUUID(), randomUUID(), 1_500];
	{
		await using service = await startTestService(env);
		const messages = Array.from({ length: count }, (_, n) => message(`${n + 1}`, `word${n + 1}`));
		await post(service, KEY, first, { title: "a title" }, ...messages.slice(0, 500));
		await post(service, KEY, second, {}, ...messages.slice(500));
	}
	await sqlOn(url, "DELETE FROM conversation_updates.search_texts");
	await sqlOn(url, "UPDATE conversation_updates.search_progress SET version = 0, events = 0");
	// One snapshot.
	const written = async () => {
		const [row] = await sqlOn(
			url,
			"SELECT events::int, (SELECT count(*)::int FROM conversation_updates.search_texts) AS texts FROM conversation_updates.search_progress",
		);
		return row;
	};
	const lock = new pg.Client({ connectionString: url, ssl: false });
	await lock.connect();
	try {
		// The step with events of this conversation waits for the lock.
		await lock.query("BEGIN");
		const { text, values = [] } = lockConversations([second]);
		await lock.query(text, [...values]);
		await using killed = await ServiceProcess.start("", env);
		const waiting = "SELECT count(*)::int AS count FROM pg_locks WHERE NOT granted AND locktype = 'advisory'";
		await expect.poll(written).toEqual({ events: 500, texts: 500 });
		await expect.poll(() => sqlOn(url, waiting)).not.toEqual([{ count: 0 }]);
		killed.signal("SIGKILL");
		await killed.exit();
	} finally {
		await lock.end();
	}
	await using service = await ServiceProcess.start("", env);
	await expect.poll(written, { timeout: 30_000 }).toEqual({ events: count, texts: count });
	for (const n of [1, 500]) expect(await hits(service, KEY, `word${n}`)).toEqual([first]);
	for (const n of [501, 650, 1_000, 1_001, count]) expect(await hits(service, KEY, `word${n}`)).toEqual([second]);
	await found(service, "title").toEqual([first]);
});
