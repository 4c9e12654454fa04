import { randomBytes, randomUUID } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { sqlOn } from "../store/postgres/databases.ts";
import { postWebhook } from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { record } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const [RED, BLUE] = ["key-of-the-red-agents", "key-of-the-blue-agents"];
const ENV = { ACCESS_KEYS: `test:${KEY}:ingest+read,red:${RED}:ingest+read@red,blue:${BLUE}:ingest+read@blue` };
const PAGE = 8192;

/** Overwrites pages that have nothing but a part of the only record. */
function damageFile(path: string): void {
	const file = readFileSync(path);
	const database = new DatabaseSync(path);
	const stored = database.prepare("SELECT record FROM updates").get()?.record;
	database.close();
	if (!(stored instanceof Uint8Array)) throw new Error("there is no record");
	const page = Math.floor(file.indexOf(stored.subarray(3 * PAGE, 3 * PAGE + 64)) / PAGE);
	writeFileSync(path, file.fill(0xff, page * PAGE, (page + 1) * PAGE));
}

/** Lets each read of the bytes of a record fail. */
async function damageRows(url: string): Promise<void> {
	const columns = await sqlOn(
		url,
		"SELECT column_name FROM information_schema.columns WHERE table_schema = 'conversation_updates' AND table_name = 'updates'",
	);
	const shown = columns.map(({ column_name: name }) =>
		name === "record" ? "conversation_updates.unreadable(sequence) AS record" : String(name),
	);
	await sqlOn(
		url,
		`
			CREATE FUNCTION conversation_updates.unreadable(sequence bigint) RETURNS bytea STABLE LANGUAGE plpgsql
				AS $$ BEGIN RAISE data_corrupted; END $$;
			ALTER TABLE conversation_updates.updates RENAME TO whole_updates;
			CREATE VIEW conversation_updates.updates AS SELECT ${shown.join()} FROM conversation_updates.whole_updates;
		`,
	);
}

async function answer(service: TestService, key: string, id: string, query: string): Promise<unknown> {
	const response = await fetch(`${service.http}/api/v1/conversations/${id}${query}`, {
		headers: { "X-Access-Token": key },
	});
	return [response.status, (await response.text()).replaceAll(id, "ID")];
}

test.each(ENGINES)("with $engine, no byte of a record is read for a key of another owner", async ({ engine, open }) => {
	await using databases = await open();
	const env = { ...ENV, ...(await databases.create()) };
	const [id, unknown] = [randomUUID(), randomUUID()];
	await using whole = await startTestService(env);
	const body = JSON.stringify(record({ id, blob: randomBytes(100_000).toString("base64") }));
	expect((await postWebhook(whole, RED, body)).status).toBe(200);
	await whole.stop();
	if (engine === "SQLite") damageFile(env.DATABASE_URL.slice("sqlite:".length));
	else await damageRows(env.DATABASE_URL);
	await using service = await whole.restart();

	for (const query of ["", "?sequence=1"]) {
		// It is damaged: who may read it gets an error.
		const damaged = engine === "SQLite" ? 503 : 500;
		for (const key of [KEY, RED]) expect(await answer(service, key, id, query)).toEqual([damaged, expect.any(String)]);
		const foreign = await answer(service, BLUE, id, query);
		expect(foreign).toEqual(await answer(service, BLUE, unknown, query));
		expect(foreign).toEqual([404, expect.any(String)]);
	}
});
