import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { ExactJson, ExactJsonObject } from "../../../src/record/json/json-value.ts";
import type { Store } from "../../../src/store/store.ts";
import { Databases, openStore } from "../../store/postgres/databases.ts";
import { LiveService } from "./live-service.ts";

let databases: Databases;
beforeAll(async () => {
	databases = await Databases.start();
});
afterAll(() => databases[Symbol.asyncDispose]());

const report = (second: number, key: string, value: ExactJson): ExactJsonObject => ({
	id: randomUUID(),
	timestamp: `2026-01-01T00:00:0${second}`,
	source: "environment",
	kind: "ConversationStateUpdateEvent",
	key,
	value,
});

test("the first record that events make includes a state update that another replica stores meanwhile", async () => {
	const url = await databases.create();
	const id = randomUUID();
	let meanwhile: (() => Promise<unknown>) | undefined;
	const wrap = (store: Store): Store => ({
		...store,
		appendEvents: async (...of) => {
			const before = meanwhile;
			meanwhile = undefined;
			await before?.();
			return await store.appendEvents(...of);
		},
		getRecordState: (...of) => store.getRecordState(...of),
		events: store.events,
	});
	const one = await LiveService.open([], wrap, (_, options) => openStore(url, options));
	onTestFinished(() => one[Symbol.asyncDispose]());
	const other = await LiveService.open([], undefined, (_, options) => openStore(url, options));
	onTestFinished(() => other[Symbol.asyncDispose]());
	meanwhile = () => other.batch(id, [report(8, "tags", { reported: "late" })]);
	const agent = { kind: "ACPAgent", acp_command: ["acp"] };
	const workspace = { kind: "LocalWorkspace", working_dir: "/workspace" };
	const full = report(5, "full_state", { agent, workspace, execution_status: "running", tags: {} });
	expect(await one.batch(id, [full])).toEqual({ stored: 1, updateSequence: 1n });
	const { execution_status, tags } = (await one.record(id)) ?? {};
	expect({ execution_status, tags }).toEqual({ execution_status: "running", tags: { reported: "late" } });
});
