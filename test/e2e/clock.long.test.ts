import { writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import type { JsonObject } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ServiceProcess } from "../support/child.ts";
import { postWebhook, readClient } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const YEAR = 365 * 86_400;

/** A folder with a database, and a clock that can be set. */
class ClockFolder extends TempFolder {
	readonly database = this.file("conversations.db");
	readonly #difference = this.file("difference");

	/** Sets the clock of running services and of those that start later, in seconds from the right time. */
	set(seconds: number): void {
		writeFileSync(this.#difference, String(seconds));
	}

	async start(env: Readonly<Record<string, string>> = {}): Promise<ServiceProcess> {
		const preload = this.file("clock.mjs");
		writeFileSync(
			preload,
			`import { readFileSync } from "node:fs";
			const now = Date.now;
			Date.now = () => now() + 1000 * Number(readFileSync(${JSON.stringify(this.#difference)}, "utf8"));`,
		);
		// Its threads load it as well.
		const NODE_OPTIONS = `--import=${pathToFileURL(preload).href}`;
		return await ServiceProcess.start(this.database, { NODE_OPTIONS, ...env });
	}
}

async function post(service: ServiceProcess, json: JsonObject): Promise<void> {
	expect((await postWebhook(service, KEY, JSON.stringify(json))).status).toBe(200);
}

/** Stops a service, which first completes its current round of retention. */
async function stop(service: ServiceProcess): Promise<void> {
	service.signal("SIGTERM");
	expect(await service.exit()).toEqual({ code: 0, signal: null });
}

/** Returns the sequences of all updates, each with its year of receipt. */
async function received(service: ServiceProcess): Promise<[bigint, number][]> {
	const { updates } = await readClient(service, "gRPC", KEY).listConversationUpdates({ pageSize: 1000 });
	return updates.map(({ sequence, receivedAt }) => [
		sequence,
		new Date(Number(receivedAt?.seconds) * 1000).getUTCFullYear(),
	]);
}

const lines = ({ output }: ServiceProcess, event: string) =>
	output.stdout.split("\n").filter((line) => line.includes(`"event":"${event}"`));

test("a clock that is ten years ahead causes no pruning, neither at the first start nor at the next", async () => {
	using folder = new ClockFolder();
	const json = record();
	const retention = { RETENTION_DAYS: "1", EVENT_RETENTION_DAYS: "1" };
	folder.set(0);
	const year = new Date().getUTCFullYear();
	{
		await using service = await folder.start(retention);
		for (const title of ["one", "two", "three"]) await post(service, { ...json, title });
		await stop(service);
		expect(lines(service, "clock_doubted")).toEqual([]);
	}
	folder.set(10 * YEAR);
	const later = new Date(Date.now() + 10 * YEAR * 1000).getUTCFullYear();
	for (const title of ["four", "five"]) {
		await using service = await folder.start(retention);
		const { clock, retentionTime } = await service.logged((line) => line.event === "clock_doubted");
		expect([clock, retentionTime].map((time) => new Date(String(time)).getUTCFullYear())).toEqual([later, year]);
		await post(service, { ...json, title });
		await stop(service);
		expect(lines(service, "clock_doubted")).toHaveLength(1);
	}
	folder.set(0);
	await using service = await folder.start(retention);
	expect(await received(service)).toEqual([
		[1n, year],
		[2n, year],
		[3n, year],
		[4n, later],
		[5n, later],
	]);
	expect(lines(service, "clock_doubted")).toEqual([]);
});
