import { setTimeout as delay } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { ServiceError } from "../../../src/errors.ts";
import { CHANNEL, type Connections } from "../../../src/store/postgres/connections.ts";
import { CommitUnknown } from "../../../src/store/postgres/failures.ts";
import { TempFolder } from "../../support/temp.ts";
import { connected } from "./connecting.ts";
import { startWithStandby } from "./pair.ts";
import { PostgresServer } from "./server.ts";

const WRITERS = 4;
/** Number of entries that are acknowledged before the primary is killed, and again after the promotion. */
const ENTRIES = 150;
/** Time between two attempts of a writer, in milliseconds. */
const RETRY_DELAY = 20;

/** Starts a primary that waits for its synchronous standby at each commit, with a log table and a table of entries. */
async function pair() {
	const folder = new TempFolder();
	const primary = await PostgresServer.create(folder.file("primary"));
	onTestFinished(async () => {
		await primary[Symbol.asyncDispose]();
		folder[Symbol.dispose]();
	});
	await primary.start();
	await primary.sql("CREATE TABLE log (newest int8)");
	await primary.sql("INSERT INTO log VALUES (0)");
	await primary.sql("CREATE TABLE entries (sequence int8, writer int4, number int4)");
	await primary.stop();
	const standby = await startWithStandby(primary, folder.file("standby"));
	onTestFinished(() => standby[Symbol.asyncDispose]());
	return { primary, standby };
}

/** Appends an entry, and retries until it is acknowledged. */
async function append(connections: Connections, writer: number, number: number): Promise<void> {
	const values = [writer, number];
	for (;;) {
		try {
			await connections.transaction((transaction) =>
				transaction.commit(
					{
						text: `WITH taken AS (UPDATE log SET newest = newest + 1 RETURNING newest)
							INSERT INTO entries SELECT newest, $1, $2 FROM taken`,
						values,
					},
					{ text: `SELECT pg_notify('${CHANNEL}', '')` },
				),
			);
			return;
		} catch (error) {
			if (!(error instanceof ServiceError) || error.kind !== "unavailable") throw error;
			if (error instanceof CommitUnknown && (await tookPlace(connections, values))) return;
			await delay(RETRY_DELAY);
		}
	}
}

/** Returns whether a commit of unknown outcome took place. It has ended once this transaction locks the log's row. */
async function tookPlace(connections: Connections, values: readonly number[]): Promise<boolean> {
	for (;;) {
		try {
			const rows = await connections.transaction(async (transaction) => {
				await transaction.query({ text: "SELECT newest FROM log FOR UPDATE" });
				return transaction.query({ text: "SELECT 1 FROM entries WHERE writer = $1 AND number = $2", values });
			});
			return (rows[0] ?? []).length > 0;
		} catch (error) {
			if (!(error instanceof ServiceError) || error.kind !== "unavailable") throw error;
			await delay(RETRY_DELAY);
		}
	}
}

/** Follows the log by its sequence numbers: reads at each notification, and at each poll of the listener. */
function follow(connections: Connections) {
	const seen: unknown[] = [];
	let hints = 0;
	let after: unknown = 0n;
	let reading = Promise.resolve();
	const read = async () => {
		const query = { text: "SELECT * FROM entries WHERE sequence > $1 ORDER BY sequence", values: [after] };
		const [rows = []] = await connections.read((session) => session.query(query));
		seen.push(...rows);
		after = rows.at(-1)?.sequence ?? after;
	};
	connections.listen((payload) => {
		if (payload !== undefined) hints++;
		// If a read fails, the next poll reads the same entries.
		reading = reading.then(read).catch(() => undefined);
	});
	return { seen, hints: () => hints };
}

test("after a failover no acknowledged entry is lost or duplicated, and writers and followers continue", async () => {
	const { primary, standby } = await pair();
	const hosts = `127.0.0.1:${primary.port},127.0.0.1:${standby.port}`;
	const url = primary.url("?target_session_attrs=read-write").replace(`127.0.0.1:${primary.port}`, hosts);
	const replicas = await Promise.all([connected(url), connected(url)]);
	const [first, second] = replicas.map(({ connections }) => connections);
	if (first === undefined || second === undefined) throw new Error("there are two replicas");
	const follower = follow(second);

	const acknowledged: { writer: number; number: number }[] = [];
	let stop = false;
	const writers = Array.from({ length: WRITERS }, async (_, writer) => {
		for (let number = 0; !stop; number++) {
			await append(writer % 2 === 0 ? first : second, writer, number);
			acknowledged.push({ writer, number });
		}
	});
	const count = () => acknowledged.length;
	await expect.poll(count, { timeout: 30_000 }).toBeGreaterThan(ENTRIES);
	await primary.kill();
	// Each replica has searched both servers in vain before one of them accepts writes.
	await expect.poll(() => replicas.every(({ lines }) => lines.length > 0), { timeout: 30_000 }).toBe(true);
	const [before, hintsBefore] = [count(), follower.hints()];
	await standby.sql("SELECT pg_promote()");
	await expect.poll(count, { timeout: 30_000 }).toBeGreaterThan(before + ENTRIES);
	await expect.poll(follower.hints, { timeout: 30_000 }).toBeGreaterThan(hintsBefore);
	stop = true;
	await Promise.all(writers);

	const rows = await standby.sql("SELECT * FROM entries ORDER BY sequence");
	const entries = rows.map(({ sequence, writer, number }) => ({ sequence: BigInt(String(sequence)), writer, number }));
	const key = ({ writer, number }: { writer: unknown; number: unknown }) => `${writer}/${number}`;
	expect(entries.map(key).sort()).toEqual(acknowledged.map(key).sort());
	expect(entries.map(({ sequence }) => sequence)).toEqual(entries.map((_, index) => BigInt(index + 1)));
	await expect.poll(() => follower.seen.length, { timeout: 30_000 }).toBeGreaterThanOrEqual(entries.length);
	expect(follower.seen).toEqual(entries);
	expect(replicas.map(({ lines }) => new Set(lines))).toEqual(
		replicas.map(() => new Set(["no primary of the database can be reached"])),
	);
});
