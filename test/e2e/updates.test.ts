import { setTimeout as sleep } from "node:timers/promises";
import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { UpdateChange } from "../../gen/conversations/v1/update_pb.js";
import { GrpcClient, getText, ingestClient, type Protocol, postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { ingestRequest, recordJson, recordMessage } from "../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const method = ConversationIngestService.method.ingestConversation;

let service: TestService;
let grpc: GrpcClient;

beforeAll(async () => {
	service = await startTestService();
	grpc = new GrpcClient(service, KEY);
});

afterAll(async () => {
	grpc[Symbol.dispose]();
	await service[Symbol.asyncDispose]();
});

function ingest(json: JsonObject) {
	return grpc.call(method, ingestRequest(json));
}

/** Returns a function that makes records of one conversation. */
function conversation() {
	const base = record();
	return (status: string, updatedAt: string | undefined, members: JsonObject = {}): JsonObject => ({
		...base,
		...members,
		execution_status: status,
		...(updatedAt === undefined ? {} : { updated_at: updatedAt }),
	});
}

const first = "2026-11-21T08:00:00.000001Z";
const later = "2026-11-21T08:00:00.000002Z";
const latest = "2026-11-21T08:00:00.000003Z";

describe("an update", () => {
	test("has the change that follows from the statuses before and after it", async () => {
		const at = conversation();
		const steps = [
			["idle", UpdateChange.STARTED],
			["running", UpdateChange.RUNNING],
			["waiting_for_confirmation", UpdateChange.WAITING],
			["running", UpdateChange.RUNNING],
			["paused", UpdateChange.PAUSED],
			["running", UpdateChange.RESUMED],
			["finished", UpdateChange.FINISHED],
			["error", UpdateChange.FAILED],
			["stuck", UpdateChange.STUCK],
			["idle", UpdateChange.UPDATED],
			["deleting", UpdateChange.DELETED],
		] as const;
		for (const [index, [status, change]] of steps.entries()) {
			const answer = await ingest(at(status, `2026-11-21T08:00:${String(index).padStart(2, "0")}Z`));
			expect([status, answer.change, answer.current]).toEqual([status, change, true]);
		}
	});

	test("has a larger sequence than all updates before it, over every RPC protocol", async () => {
		let newest = 0n;
		for (const protocol of ["gRPC", "connect", "connect over JSON", "gRPC-Web"] satisfies Protocol[]) {
			const client = ingestClient(service, protocol, KEY);
			const { sequence } = await client.ingestConversation(ingestRequest(record()));
			expect(sequence).toBeGreaterThan(newest);
			newest = sequence;
		}
	});
});

describe("a record that is posted again", () => {
	test("is a duplicate over every protocol, and makes no second update", async () => {
		const json = record({ title: "once", news: [1] });
		expect((await postWebhook(service, KEY, JSON.stringify(json))).status).toBe(200);
		const again = await ingest(json);
		expect(again).toMatchObject({ repetition: true, change: UpdateChange.STARTED, current: true });
		for (const protocol of ["connect", "connect over JSON", "gRPC-Web"] satisfies Protocol[])
			expect(await ingestClient(service, protocol, KEY).ingestConversation(ingestRequest(json))).toEqual(again);
		expect((await postWebhook(service, KEY, JSON.stringify(json))).status).toBe(200);
		const next = await ingest(record());
		expect(next.sequence).toBe(again.sequence + 1n);
	});

	test("is a duplicate with its defaults written out, another form of its id, and its members in another order", async () => {
		const json = record({ max_iterations: 7 });
		const { sequence } = await ingest(json);
		const complete = { ...recordJson(recordMessage(json)), id: `{${String(json.id).toUpperCase()}}` };
		const reversed = Object.fromEntries(Object.entries(complete).reverse());
		const text = JSON.stringify(reversed).replace('"max_iterations":7,', '"max_iterations":7.0,');
		expect(text).toContain('"max_iterations":7.0,');
		expect((await postWebhook(service, KEY, text)).status).toBe(200);
		expect(await ingest(json)).toMatchObject({ sequence, repetition: true });
		expect(await ingest(record())).toMatchObject({ sequence: sequence + 1n });
	});

	test("after a newer one is a new update, and does not become current", async () => {
		const at = conversation();
		await ingest(at("idle", first));
		await ingest(at("running", later));
		expect(await ingest(at("idle", first))).toMatchObject({ repetition: false, current: false });
	});

	test.each([
		["without times", undefined],
		["with equal times", first],
	])("after another one, %s, is a new update, and becomes current", async (_, time) => {
		const at = conversation();
		const answers = [];
		for (const status of ["running", "paused", "running"]) answers.push(await ingest(at(status, time)));
		expect(answers.map(({ repetition, current, change }) => ({ repetition, current, change }))).toEqual([
			{ repetition: false, current: true, change: UpdateChange.STARTED },
			{ repetition: false, current: true, change: UpdateChange.PAUSED },
			{ repetition: false, current: true, change: UpdateChange.RESUMED },
		]);
		const { id } = at("running", time);
		expect(JSON.parse(await getText(service, KEY, id))).toMatchObject({ execution_status: "running" });
	});
});

describe("records that overtake each other", () => {
	test("do not become current when they are older than the current one", async () => {
		const at = conversation();
		await ingest(at("running", later));
		expect(await ingest(at("idle", first))).toMatchObject({
			repetition: false,
			current: false,
			change: UpdateChange.UPDATED,
		});
		expect(await ingest(at("paused", latest))).toMatchObject({ current: true, change: UpdateChange.PAUSED });
	});

	test("become current in the order of arrival when their times are equal", async () => {
		const at = conversation();
		await ingest(at("running", first));
		expect(await ingest(at("paused", first))).toMatchObject({ current: true, change: UpdateChange.PAUSED });
	});

	test("become current in the order of arrival without times", async () => {
		const at = conversation();
		await ingest(at("running", undefined));
		expect(await ingest(at("paused", undefined))).toMatchObject({ current: true, change: UpdateChange.PAUSED });
	});

	test("replace a deleting record only when they are deleting and newer", async () => {
		const at = conversation();
		await ingest(at("running", first));
		// The sender deletes without changing updated_at.
		expect(await ingest(at("deleting", first))).toMatchObject({ current: true, change: UpdateChange.DELETED });
		expect(await ingest(at("paused", first, { title: "late" }))).toMatchObject({ current: false });
		expect(await ingest(at("paused", undefined, { title: "no time" }))).toMatchObject({ current: false });
		expect(await ingest(at("deleting", first, { title: "another" }))).toMatchObject({ current: false });
		expect(await ingest(at("deleting", undefined, { title: "another" }))).toMatchObject({ current: false });
		expect(await ingest(at("deleting", later, { title: "newer" }))).toMatchObject({ current: true });
		expect(await ingest(at("running", latest))).toMatchObject({ current: false });
	});

	test.each(["paused", "deleting"])(
		"become current after a record with a time far in the future, %s",
		async (status) => {
			const at = conversation();
			const ahead = await ingest(at("running", "9999-12-31T23:59:59.999999Z"));
			expect(ahead).toMatchObject({ current: true });
			// The second record must arrive at a later time than the first.
			await sleep(10);
			expect(await ingest(at(status, new Date().toISOString()))).toMatchObject({ current: true });
			const { id } = at("", undefined);
			expect(JSON.parse(await getText(service, KEY, id))).toMatchObject({ execution_status: status });
		},
	);
});

describe("concurrent posts of one record", () => {
	test("make one update", async () => {
		const json = record();
		const answers = await Promise.all(Array.from({ length: 20 }, () => ingest(json)));
		expect(answers.filter(({ repetition }) => !repetition)).toHaveLength(1);
		expect(new Set(answers.map(({ sequence }) => sequence)).size).toBe(1);
	});
});
