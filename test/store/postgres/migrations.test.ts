import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { migrate, SCHEMA_VERSION } from "../../../src/store/postgres/schema.ts";
import { PRERELEASE } from "../../../src/store/schema.ts";
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
	const outcomes = await Promise.all(connections.map((one) => migrate(one)));
	// A replica that begins a little later finds the first migrations done.
	expect(outcomes).toEqual(connections.map(() => ({ from: expect.any(Number), to: SCHEMA_VERSION })));
	expect(Math.min(...outcomes.map(({ from }) => from))).toBe(0);
	const versions = await sqlOn(url, "SELECT version FROM conversation_updates.schema_versions ORDER BY version");
	expect(versions.map(({ version }) => Number(version))).toEqual([SCHEMA_VERSION]);
	expect(await migrate(connections[0] ?? (await connect(url)))).toEqual({
		from: SCHEMA_VERSION,
		to: SCHEMA_VERSION,
	});
});

test("a database that a newer release has migrated is refused", async () => {
	const url = await databases.create();
	await (await openStore(url)).close();
	const newer = SCHEMA_VERSION + 1;
	await sqlOn(url, `INSERT INTO conversation_updates.schema_versions (version) VALUES (${newer})`);
	await expect(openStore(url)).rejects.toMatchObject(
		refusal(
			`the database has schema version ${newer}, written by a newer release; this one knows up to ${SCHEMA_VERSION}`,
		),
	);
});

test("a database from before release 1.0.0 is refused", async () => {
	const url = await databases.create();
	await (await openStore(url)).close();
	await sqlOn(url, "CREATE TABLE conversation_updates.derivations (name text)");
	await expect(openStore(url)).rejects.toMatchObject(refusal(PRERELEASE));
});

test("a database whose encoding is not UTF8 is refused", async () => {
	await databases.server.sql("CREATE DATABASE old ENCODING 'LATIN1' TEMPLATE template0");
	await expect(openStore(urlOf(databases.server.url(), "old"))).rejects.toMatchObject(
		refusal("the database's encoding is LATIN1, and must be UTF8"),
	);
});

test("a database without Citus is refused when its tables shall be distributed", async () => {
	const url = await databases.create();
	await expect(openStore(url, { distribute: true })).rejects.toMatchObject(
		refusal("its tables cannot be distributed without Citus: the database has no extension citus"),
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
