import { fromBinary, type JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { readConfig } from "../../../src/config/config.ts";
import { deriveSummaries, summaryOf } from "../../../src/conversations/ingest/derive-summaries.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { RecordVault } from "../../../src/record/secrets/record-vault.ts";
import { encodeSummary, SUMMARY_RULES, summarize } from "../../../src/record/summary.ts";
import { COMPLETE } from "../../../src/store/derivation.ts";
import { openStore } from "../../../src/store/open.ts";
import type { Store } from "../../../src/store/store.ts";
import type { NewUpdate } from "../../../src/store/updates.ts";
import { ENGINES, type EngineDatabases } from "../../support/engines.ts";
import { record } from "../../support/fixtures.ts";
import { testEnvironment } from "../../support/service.ts";

const format = new RecordFormat();
const vault = new RecordVault(format, []);
const ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

/** Returns an update as a release stored it that made summaries before it hid secrets. */
function leaking(id: string, url: string, updated_at: string, more: JsonObject = {}): NewUpdate {
	const agent = { kind: "Agent", llm: { model: url } };
	const message = format.fromJson(record({ id, title: `clone ${url}`, tags: { a: url }, agent, updated_at, ...more }));
	const summary = encodeSummary(summarize(message));
	return { conversationId: id, receivedAt: 0n, summary, record: vault.protect(message) };
}

async function summaries(store: Store): Promise<(string | undefined)[][]> {
	const updates = await store.updates.list({ after: 0n, limit: 10, withRecords: false });
	return updates.map(({ summary }) => {
		const { title, model, tags } = fromBinary(ConversationSummarySchema, summary);
		return [title, model, tags.a];
	});
}

const URLS = ["https://user:PASS1@host/", "https://user:PASS2@host/", "https://host/"] as const;
/** Size in bytes from which records are summarized on another thread. */
const LARGE = 4_096;
/** Sizes of the records that were summarized there. */
const largeSizes: number[] = [];
const HIDDEN = "https://**********@host/";
const whole = (url: string) => [`clone ${url}`, url, url];

describe.each(ENGINES)("summaries in $engine that a release with other rules stored", ({ open }) => {
	let databases: EngineDatabases;
	beforeAll(async () => {
		databases = await open();
	});
	afterAll(async () => {
		await databases[Symbol.asyncDispose]();
	});

	async function opened(): Promise<Store> {
		const { database } = readConfig({ ...testEnvironment(""), ...(await databases.create()) });
		const store = await openStore(database, { error() {} }, { isSameRecord: async () => false });
		await store.append(leaking(ID, URLS[0], "2026-01-01T00:00:00Z"));
		await store.append(leaking(ID, URLS[1], "2026-01-02T00:00:00Z", { padding: "x".repeat(LARGE) }));
		await store.append(leaking("11111111-2222-4333-8444-555555555555", URLS[2], "2026-01-03T00:00:00Z"));
		return store;
	}

	async function derive(store: Store): Promise<[examined: number, replaced: number, isComplete: boolean][]> {
		const progress: [number, number, boolean][] = [];
		const { signal } = new AbortController();
		const large = {
			minLargeBytes: LARGE,
			summaryOf: async (record: Uint8Array) => {
				largeSizes.push(record.byteLength);
				return summaryOf(record, vault);
			},
		};
		await deriveSummaries(store, vault, large, signal, (...step) => progress.push(step));
		return progress;
	}

	async function found(store: Store, text: string): Promise<string[][]> {
		const conditions = [
			{ kind: "title", contains: text },
			{ kind: "tag", key: "a", value: text },
			{ kind: "equal", field: "model", value: text },
		] as const;
		return await Promise.all(
			conditions.map(async (condition) => {
				const query = { conditions: [condition], limit: 10, withRecords: false };
				return (await store.listConversations(query)).map(({ conversationId }) => conversationId);
			}),
		);
	}

	test("are derived anew from the stored records, once, with the values that lists filter by", async () => {
		await using store = await opened();
		largeSizes.length = 0;
		expect(await summaries(store)).toEqual(URLS.map(whole));
		expect(await found(store, URLS[1])).toEqual([[ID], [ID], [ID]]);

		expect(await derive(store)).toEqual([
			[3, 2, false],
			[3, 2, true],
		]);
		expect(await summaries(store)).toEqual([HIDDEN, HIDDEN, URLS[2]].map(whole));
		expect(largeSizes).toEqual([expect.toSatisfy((size: number) => size > LARGE)]);
		for (const url of URLS.slice(0, 2)) expect(await found(store, url)).toEqual([[], [], []]);
		expect(await found(store, HIDDEN)).toEqual([[ID], [ID], [ID]]);
		expect(await derive(store)).toEqual([]);
	});

	test("are derived from where an interrupted run ended, and from the beginning if the rules have changed", async () => {
		await using store = await opened();
		const [first] = await store.updates.list({ after: 0n, limit: 1, withRecords: false });
		const [name, version, through] = ["summaries", vault.rules + SUMMARY_RULES, first?.sequence ?? 0n] as const;
		await store.saveDerivation({ name, version, through, summaries: [] });
		expect(await derive(store)).toEqual([
			[2, 1, false],
			[2, 1, true],
		]);
		expect(await summaries(store)).toEqual([URLS[0], HIDDEN, URLS[2]].map(whole));

		await store.saveDerivation({ name, version: version - 1, through: COMPLETE, summaries: [] });
		expect(await derive(store)).toEqual([
			[3, 1, false],
			[3, 1, true],
		]);
		expect(await summaries(store)).toEqual([HIDDEN, HIDDEN, URLS[2]].map(whole));
		expect(await store.getDerivation(name)).toEqual({ version, through: COMPLETE });
	});
});
