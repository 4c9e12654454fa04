import { randomUUID } from "node:crypto";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { sqlOn } from "../store/postgres/databases.ts";
import { ServiceProcess } from "../support/child.ts";
import { EVENT_WEBHOOK, postWebhook } from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { record } from "../support/fixtures.ts";
import { testEnvironment } from "../support/service.ts";

const [AGENT, THIEF, ADMIN] = ["key-of-agent-server-1", "key-of-another-team-2", "key-of-the-operators"];

const page = z.object({
	conversations: z.array(z.object({ summary: z.object({ id: z.string(), sender: z.string(), owner: z.string() }) })),
});

/** Makes the database one of a release that kept no senders. */
async function forgetSenders(url: string): Promise<void> {
	const isSqlite = url.startsWith("sqlite:");
	const schema = isSqlite ? "" : "conversation_updates.";
	const texts = [
		...["heads", "conversations", "activities", "updates", "events"].map(
			(table) => `UPDATE ${schema}${table} SET sender = NULL`,
		),
		...["usage_conversations", "usage_sums"].map((table) => `UPDATE ${schema}${table} SET sender = ''`),
		`DELETE FROM ${schema}senders`,
	];
	if (!isSqlite) return void (await sqlOn(url, texts.join(";")));
	using database = new DatabaseSync(url.slice("sqlite:".length));
	database.exec(texts.join(";"));
}

describe.each(ENGINES)("with $engine", ({ open }) => {
	test("a fleet gets owners by the documented steps without a refused post, after an upgrade from before senders", async () => {
		await using databases = await open();
		const { DATABASE_URL } = await databases.create();
		const environment = (agentOwner: string) => ({
			...testEnvironment(""),
			DATABASE_URL,
			ACCESS_KEYS: `agent-1:${AGENT}:ingest${agentOwner},thief:${THIEF}:ingest@team-b,admin:${ADMIN}:read`,
		});
		const run = async (env: Readonly<Record<string, string>>, work: (service: ServiceProcess) => Promise<void>) => {
			await using service = await ServiceProcess.start("", env);
			await work(service);
			service.signal("SIGTERM");
			expect((await service.exit()).code).toBe(0);
		};
		const ids = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];
		const [active = "", batched = "", old = ""] = ids;
		const usage = { agent: { model_name: "a", accumulated_cost: 1 } };
		const post = async (service: ServiceProcess, key: string, id: string, title: string) => {
			const body = record({
				id,
				title,
				updated_at: `2026-01-0${title.length}T00:00:00Z`,
				stats: { usage_to_metrics: usage },
			});
			return (await postWebhook(service, key, JSON.stringify(body))).status;
		};
		const event = { id: "later", timestamp: "2026-01-09T00:00:01", source: "agent", kind: "PauseEvent" };
		const batch = async (service: ServiceProcess, key: string, id: string) =>
			(await postWebhook(service, key, JSON.stringify([event]), {}, `${EVENT_WEBHOOK}/${id}`)).status;
		const assign = async (...args: readonly string[]) => {
			const { stdout, stderr } = await ServiceProcess.run(environment(""), "owners", "assign", ...args);
			return [
				stdout,
				stderr
					.split("\n")
					.filter((line) => !line.includes("owner_assigned"))
					.join("\n"),
			];
		};
		const sentences = (assigned: string, left?: string) => [
			`${assigned} now.\n${left === undefined ? "" : `${left}, because nobody is known to have posted `}`,
			"",
		];
		/** Returns what a command printed, without the hint at the end of the sentence about what was left. */
		const printed = async (...args: readonly string[]) => {
			const [stdout = "", stderr] = await assign(...args);
			return [stdout.replace(/(?:it|them); --no-sender assigns them\.\n$/, ""), stderr];
		};
		const senders = async (service: ServiceProcess) => {
			const answer = await fetch(`${service.http}/api/v1/conversations`, { headers: { "X-Access-Token": ADMIN } });
			const { conversations } = page.parse(await answer.json());
			return new Map(conversations.map(({ summary: { id, sender, owner } }) => [id, [sender, owner]]));
		};

		await run(environment(""), async (service) => {
			for (const [n, id] of ids.entries()) expect(await post(service, AGENT, id, n < 3 ? "a" : "bb")).toBe(200);
		});
		await forgetSenders(DATABASE_URL);
		expect(await printed("team-a", "--sender", "agent-1")).toEqual(
			sentences("0 conversations belong to team-a", "4 without an owner were left"),
		);
		await run(environment(""), async (service) => {
			// Whoever knows an id takes nothing by posting to it.
			for (const id of ids)
				expect([await post(service, THIEF, id, "aaa"), await batch(service, THIEF, id)]).toEqual([403, 403]);
			expect(await post(service, AGENT, active, "aaaa")).toBe(200);
			expect(await batch(service, AGENT, batched)).toBe(200);
			const none = ["", ""];
			expect(await senders(service)).toEqual(
				new Map(ids.map((id) => [id, id === active || id === batched ? ["agent-1", ""] : none])),
			);
		});
		expect(await printed("team-b", "--sender", "thief")).toEqual(
			sentences("0 conversations belong to team-b", "2 without an owner were left"),
		);
		expect(await printed("team-a", "--sender", "agent-1")).toEqual(
			sentences("2 conversations belong to team-a", "2 without an owner were left"),
		);
		expect(
			await printed("team-a", "--no-sender", "--filter", "title_contains=a&created_to=2100-01-01T00:00:00Z"),
		).toEqual(sentences("1 conversation belongs to team-a", "1 without an owner was left"));
		expect(await printed("team-c", "--no-sender")).toEqual(sentences("1 conversation belongs to team-c"));
		await run(environment("@team-a"), async (service) => {
			for (const id of [active, batched, old]) {
				expect(await post(service, AGENT, id, "aaaaa")).toBe(200);
				expect(await batch(service, AGENT, id)).toBe(200);
				expect(await post(service, THIEF, id, "aaaaaa")).toBe(403);
			}
			expect(await post(service, AGENT, ids[3] ?? "", "aaaaa")).toBe(403);
			expect(await senders(service)).toEqual(
				new Map(ids.map((id) => [id, id === ids[3] ? ["", "team-c"] : ["agent-1", "team-a"]])),
			);
		});
	});
});
