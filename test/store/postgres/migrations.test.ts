import pg from "pg";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { migrate } from "../../../src/store/postgres/migrate.ts";
import { MIGRATIONS } from "../../../src/store/postgres/schema.ts";
import { append, listed, pages, sample } from "../samples.ts";
import { connect, Databases, openStore, sqlOn, urlOf } from "./databases.ts";

let databases: Databases;
beforeAll(async () => {
	databases = await Databases.start();
});
afterAll(() => databases[Symbol.asyncDispose]());

const refusal = (reason: string) => ({
	name: "ServiceError",
	kind: "unavailable",
	message: "the store's database cannot be opened",
	cause: new Error(reason),
});

test("replicas that start together migrate the database once", async () => {
	const url = await databases.create();
	const connections = await Promise.all(Array.from({ length: 4 }, () => connect(url)));
	onTestFinished(async () => {
		for (const one of connections) await one[Symbol.asyncDispose]();
	});
	const outcomes = await Promise.all(connections.map(migrate));
	// A replica that begins a little later finds the first migrations done.
	expect(outcomes).toEqual(connections.map(() => ({ from: expect.any(Number), to: MIGRATIONS.length })));
	expect(Math.min(...outcomes.map(({ from }) => from))).toBe(0);
	const versions = await sqlOn(url, "SELECT version FROM conversation_updates.schema_versions ORDER BY version");
	expect(versions.map(({ version }) => Number(version))).toEqual(MIGRATIONS.map((_, n) => n + 1));
	expect(await migrate(connections[0] ?? (await connect(url)))).toEqual({
		from: MIGRATIONS.length,
		to: MIGRATIONS.length,
	});
});

test("a database that a newer release has migrated is refused", async () => {
	const url = await databases.create();
	await (await openStore(url)).close();
	const newer = MIGRATIONS.length + 1;
	await sqlOn(url, `INSERT INTO conversation_updates.schema_versions (version) VALUES (${newer})`);
	await expect(openStore(url)).rejects.toMatchObject(
		refusal(
			`the database has schema version ${newer}, written by a newer release; this one knows up to ${MIGRATIONS.length}`,
		),
	);
});

test("a database of schema version 1 is upgraded and keeps its data", async () => {
	const url = await databases.create();
	await sqlOn(url, "CREATE EXTENSION pg_trgm");
	const update = sample();
	const first = await openStore(url);
	const outcome = await append(first, update);
	await first.close();
	const titleIndex = () => sqlOn(url, "SELECT reloptions FROM pg_class WHERE relname = 'titles_by_trigram'");
	const made = await titleIndex();
	expect(made).toEqual([{ reloptions: ["gin_pending_list_limit=1024"] }]);
	await sqlOn(
		url,
		`DELETE FROM conversation_updates.schema_versions WHERE version > 1;
		ALTER INDEX conversation_updates.titles_by_trigram RESET (gin_pending_list_limit);
		DROP FUNCTION conversation_updates.count_conversations, conversation_updates.count_tags,
			conversation_updates.count_assigned_tags, conversation_updates.add_usage_days,
			conversation_updates.remove_usage_days, conversation_updates.widen_event_times CASCADE;
		DROP TABLE conversation_updates.conversation_counts, conversation_updates.tag_key_counts,
			conversation_updates.tag_value_counts CASCADE;
		ALTER TABLE conversation_updates.conversations DROP COLUMN life_began_at, DROP COLUMN run_started_at,
			DROP COLUMN cost, DROP COLUMN tokens;
		DROP TABLE conversation_updates.standings;
		ALTER TABLE conversation_updates.updates DROP COLUMN error_sequence;
		ALTER TABLE conversation_updates.activities DROP COLUMN first_message_at, DROP COLUMN first_message,
			DROP COLUMN error_at, DROP COLUMN error, DROP COLUMN error_sequence;
		ALTER TABLE conversation_updates.conversations RENAME COLUMN member_times TO told;
		ALTER TABLE conversation_updates.activities RENAME COLUMN last_state_update_at TO told_at;
		UPDATE conversation_updates.conversations SET created_at = NULL, updated_at = NULL;
		ALTER TABLE conversation_updates.conversations RENAME COLUMN has_unapplied_events TO is_behind;
		ALTER INDEX conversation_updates.conversations_unapplied RENAME TO conversations_behind;
		ALTER TABLE conversation_updates.unfinished_import RENAME COLUMN manifest TO source;
		ALTER TABLE conversation_updates.unfinished_import RENAME TO unfinished_copy;
		DROP TABLE conversation_updates.access_keys, conversation_updates.refused_posts;
		DROP TABLE conversation_updates.search_progress, conversation_updates.search_texts, conversation_updates.search_titles;
		DROP TABLE conversation_updates.derivations, conversation_updates.senders, conversation_updates.refusals;
		ALTER TABLE conversation_updates.events DROP COLUMN llm_response_id, DROP COLUMN sender, DROP COLUMN owner,
			DROP COLUMN origin;
		DROP TABLE conversation_updates.gaps, conversation_updates.claims, conversation_updates.event_times;
		ALTER TABLE conversation_updates.updates DROP COLUMN sender, DROP COLUMN owner;
		ALTER TABLE conversation_updates.conversations DROP COLUMN sender, DROP COLUMN owner, DROP COLUMN source_id;
		ALTER TABLE conversation_updates.activities DROP COLUMN sender, DROP COLUMN owner;
		ALTER TABLE conversation_updates.pruned DROP COLUMN owner;
		ALTER TABLE conversation_updates.positions DROP COLUMN rewrites;
		DROP TABLE conversation_updates.erasures;
		DROP TABLE conversation_updates.usage_conversations, conversation_updates.usage_ledger, conversation_updates.usage_days, conversation_updates.usage_sums`,
	);
	const store = await openStore(url);
	onTestFinished(() => store.close());
	expect(await titleIndex()).toEqual(made);
	const { receivedAt } = update;
	const times = {
		createdFrom: receivedAt,
		createdTo: receivedAt + 1n,
		updatedFrom: receivedAt,
		updatedTo: receivedAt + 1n,
	};
	expect((await pages(store, times, 10)).flat()).toEqual([listed(update, outcome)]);
	expect(await append(store, sample())).toMatchObject({ sequence: 2n });
});

test("a database whose encoding is not UTF8 is refused", async () => {
	await databases.server.sql("CREATE DATABASE old ENCODING 'LATIN1' TEMPLATE template0");
	await expect(openStore(urlOf(databases.server.url(), "old"))).rejects.toMatchObject(
		refusal("the database's encoding is LATIN1, and must be UTF8"),
	);
});

test("a role without the right to create tables suffices once the tables exist", async () => {
	const url = await databases.create();
	await databases.server.sql("CREATE ROLE service LOGIN PASSWORD 'only-for-this-test'");
	const own = new URL(url);
	own.username = "service";
	own.password = "only-for-this-test";
	await expect(openStore(own.href)).rejects.toMatchObject({ kind: "unavailable" });
	await (await openStore(url)).close();
	await sqlOn(url, "GRANT USAGE ON SCHEMA conversation_updates TO service");
	await sqlOn(url, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA conversation_updates TO service");
	const store = await openStore(own.href);
	onTestFinished(() => store.close());
	const update = sample();
	const outcome = await append(store, update);
	await store.check();
	expect((await pages(store, {}, 10)).flat()).toEqual([listed(update, outcome)]);
	expect(await store.prune({ updatesPerConversation: 1, limit: 10 })).toBe(0);
});

test("appends continue while the title index is built, and an interrupted build is repeated", async () => {
	const url = await databases.create();
	const store = await openStore(url);
	onTestFinished(() => store.close());
	await append(store, sample({ columns: { title: "first" } }));
	await sqlOn(url, "CREATE EXTENSION pg_trgm");
	const writer = new pg.Client({ connectionString: url, ssl: false });
	await writer.connect();
	onTestFinished(() => writer.end());
	const state = () =>
		sqlOn(url, "SELECT indisvalid FROM pg_index WHERE indexrelid::regclass::text LIKE '%titles_by_tri%'");
	await writer.query("BEGIN");
	await writer.query("UPDATE conversation_updates.titles SET title = 'second'");
	const opening = openStore(url).then(
		async (other) => await other.close(),
		({ message }: Error) => message,
	);
	// The build of the index waits for the open transaction.
	await expect.poll(state, { timeout: 30_000 }).toEqual([{ indisvalid: false }]);
	expect(await append(store, sample({ columns: { title: "third" } }))).toMatchObject({ sequence: 2n });
	const busy = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%CONCURRENTLY%' AND pid <> pg_backend_pid()";
	for (const { pid } of await sqlOn(url, busy)) await sqlOn(url, `SELECT pg_cancel_backend(${pid})`);
	expect(await opening).toBe("the database did not finish in time");
	expect(await state()).toEqual([{ indisvalid: false }]);
	await writer.query("COMMIT");
	await (await openStore(url)).close();
	expect(await state()).toEqual([{ indisvalid: true }]);
});

test("titles have an index once the extension pg_trgm exists, in whatever schema", async () => {
	const url = await databases.create();
	const first = await openStore(url);
	const update = sample({ columns: { title: "Fix the LOGIN page of 50% a_b \\ c" } });
	const outcome = await append(first, update);
	await first.close();
	const indexes = () => sqlOn(url, "SELECT indexname FROM pg_indexes WHERE indexname = 'titles_by_trigram'");
	expect(await indexes()).toEqual([]);
	await sqlOn(url, "CREATE SCHEMA extensions");
	await sqlOn(url, "CREATE EXTENSION pg_trgm SCHEMA extensions");
	const store = await openStore(url);
	onTestFinished(() => store.close());
	expect(await indexes()).toEqual([{ indexname: "titles_by_trigram" }]);
	for (const titleContains of ["login", "50% A", "a_b", "\\", "page", ""])
		expect((await pages(store, { titleContains }, 10)).flat()).toEqual([listed(update, outcome)]);
	for (const titleContains of ["a%b", "axb", "log in"])
		expect((await pages(store, { titleContains }, 10)).flat()).toEqual([]);
});
