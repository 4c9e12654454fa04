import { randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ConversationReportService } from "../../gen/conversations/v1/conversation_report_service_pb.js";
import { ServiceProcess } from "../support/child.ts";
import { clientOf, postWebhook, readClient } from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { record } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const RED = "key-of-the-red-agents";
const ACCESS_KEYS = `test:${KEY}:ingest+read,red:${RED}:ingest+read@red`;
const RETENTION_RULES = "owner:red=30,tag:scratch=7,tag:env=dev=14";
const DAY = 86_400_000;

test.each(ENGINES)(
	"with $engine, rules remove conversations of an owner or with a tag, and keep what they spent",
	async ({ open }) => {
		await using databases = await open();
		const database = await databases.create();
		await using writer = await startTestService({ ...database, ACCESS_KEYS });
		const ids = new Map<string, string>();
		const post = async (service: TestService, name: string, key: string, days: number, tags: JsonObject) => {
			const id = ids.getOrInsertComputed(name, () => randomUUID());
			const updated_at = new Date(Date.now() - days * DAY).toISOString();
			const stats = { usage_to_metrics: { agent: { model_name: "m", accumulated_cost: 1 } } };
			const times = { created_at: "2020-01-01T00:00:00Z", updated_at };
			const json = record({ id, title: name, tags, stats, ...times });
			expect((await postWebhook(service, key, JSON.stringify(json))).status).toBe(200);
		};
		await post(writer, "red, 31 days", RED, 31, {});
		await post(writer, "red, 29 days", RED, 29, {});
		await post(writer, "red and scratch, 8 days", RED, 8, { scratch: "yes" });
		await post(writer, "dev, 15 days", KEY, 15, { env: "dev" });
		await post(writer, "dev, 13 days", KEY, 13, { env: "dev" });
		await post(writer, "prod, 400 days", KEY, 400, { env: "prod" });
		const titles = async (service: TestService) =>
			(await readClient(service, "connect", KEY).listConversations({ pageSize: 100 })).conversations
				.map(({ summary }) => summary?.title)
				.sort();
		const cost = async (service: TestService) =>
			(await clientOf(ConversationReportService, service, "connect", KEY).reportUsage({})).rows.map(
				({ usage }) => usage?.cost,
			);
		const before = await titles(writer);
		const counted = await ServiceProcess.run({ ...database, RETENTION_RULES }, "retention", "dry-run");
		expect(counted.stdout.split("\n").map((line) => line.split(/ {2,}/))).toEqual([
			["RULE", "DAYS", "CONVERSATIONS"],
			["owner:red", "30", "1"],
			["tag:scratch", "7", "1"],
			["tag:env=dev", "14", "1"],
			[""],
		]);
		expect(await titles(writer)).toEqual(before);
		expect(await cost(writer)).toEqual([6]);
		await using service = await writer.restart({ RETENTION_RULES });
		const left = ["dev, 13 days", "prod, 400 days", "red, 29 days"];
		await expect.poll(() => titles(service), { timeout: 60_000 }).toEqual(left);
		expect(await cost(service)).toEqual([6]);
		// One that goes on is stored again, and what it spent before is not counted twice.
		await post(service, "dev, 15 days", KEY, 0, { env: "dev" });
		expect(await titles(service)).toEqual(["dev, 13 days", "dev, 15 days", "prod, 400 days", "red, 29 days"]);
		expect(await cost(service)).toEqual([6]);
	},
);
