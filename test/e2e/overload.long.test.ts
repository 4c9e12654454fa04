import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { LOCK_TIMEOUT } from "../support/lock-timeout.ts";
import { KEY, startTestService } from "../support/service.ts";

const FULL = { detail: "Requests and responses under way use too much memory; try again later" };

test("while the database is locked, posts beyond MAX_INFLIGHT_BYTES are refused with 503, and reads succeed", async () => {
	await using service = await startTestService({ MAX_BODY_BYTES: "20000", MAX_INFLIGHT_BYTES: "40000" });
	const sent = record();
	const post = async (title: string): Promise<readonly unknown[]> => {
		// Eight bodies of 5,000 bytes are as many as MAX_INFLIGHT_BYTES admits.
		const body = JSON.stringify({ ...sent, title });
		const response = await postWebhook(service, KEY, body + " ".repeat(5_000 - Buffer.byteLength(body)));
		return [response.status, response.headers.get("retry-after"), await response.json()];
	};
	expect(await post("first")).toEqual([200, null, { success: true }]);
	using other = new DatabaseSync(service.database, LOCK_TIMEOUT);
	other.exec("BEGIN IMMEDIATE");
	const posts = Array.from({ length: 9 }, (_, index) => post(`waiting ${index}`));
	// The ninth post is refused at once. The others wait for the lock, for up to two seconds.
	expect(await Promise.race(posts)).toEqual([503, "5", FULL]);
	const read = await fetch(`${service.http}/api/v1/conversations/${sent.id}`, { headers: { "X-Access-Token": KEY } });
	expect([read.status, JSON.parse(await read.text()).title]).toEqual([200, "first"]);
	other.exec("ROLLBACK");
	const full = (await Promise.all(posts)).filter(([, , answer]) => JSON.stringify(answer) === JSON.stringify(FULL));
	expect(full).toHaveLength(1);
	await expect.poll(() => post("last")).toEqual([200, null, { success: true }]);
});
