import { randomUUID } from "node:crypto";
import { fromBinary, type JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { readConfig } from "../../../src/config/config.ts";
import { deriveActivities } from "../../../src/conversations/ingest/derive-activities.ts";
import { EventFormat } from "../../../src/events/event-format.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { COMPLETE, type DerivationStep } from "../../../src/store/derivation.ts";
import { openStore } from "../../../src/store/open.ts";
import type { Store } from "../../../src/store/store.ts";
import { responseKey } from "../../../src/store/usage-names.ts";
import { appendEvents, batch } from "../../store/event-samples.ts";
import { append, sample } from "../../store/samples.ts";
import { ENGINES, type EngineDatabases } from "../../support/engines.ts";
import { testEnvironment } from "../../support/service.ts";

const format = new EventFormat(new RecordFormat(), [], "UTC");
const NAME = "activities";
const [TALK, FAILED] = ["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"] as const;

function eventAt(second: number, kind: string, source: string, members: JsonObject): JsonObject {
	return { id: randomUUID(), timestamp: `2026-01-01T00:00:0${second}`, kind, source, ...members };
}

function message(second: number, source: string, text: string): JsonObject {
	const llm_message = { role: source === "user" ? "user" : "assistant", content: [{ type: "text", text }] };
	return eventAt(second, "MessageEvent", source, { llm_message });
}

function failure(second: number, code: string): JsonObject {
	const classification = { kind: "auth", retryable: false };
	return eventAt(second, "ConversationErrorEvent", "environment", { code, detail: `${code} happened`, classification });
}

/** Stores events as a release did that derived nothing from them. */
async function store(to: Store, conversationId: string, events: readonly JsonObject[]): Promise<void> {
	await append(to, sample({ conversationId }));
	const { batch: parsed } = format.parse(conversationId, Buffer.from(JSON.stringify(events)));
	const bare = parsed.events.map(({ error: _, ...one }) => ({ ...one, message: undefined, llmResponseId: undefined }));
	await appendEvents(to, batch(conversationId, bare));
}

/** What each conversation shows of its events. */
async function shown(of: Store): Promise<unknown[]> {
	const listed = await of.listConversations({ conditions: [], limit: 10, withRecords: false });
	return listed
		.map(({ summary }) => fromBinary(ConversationSummarySchema, summary))
		.toSorted((a, b) => (a.id < b.id ? -1 : 1))
		.map(({ firstMessage, lastError: error }) => [
			firstMessage,
			error && [error.code, error.kind, error.retryable, error.text, error.eventSequence],
		]);
}

const NOTHING = [undefined, undefined];
const OF_TALK = ["What is this?", undefined];
const OF_FAILED = [undefined, ["Second", "auth", false, "Second happened", 7n]];

describe.each(ENGINES)("events in $engine that a release without first messages and errors stored", ({ open }) => {
	let databases: EngineDatabases;
	beforeAll(async () => {
		databases = await open();
	});
	afterAll(() => databases[Symbol.asyncDispose]());

	async function filled(): Promise<Store> {
		const { database } = readConfig({ ...testEnvironment(""), ...(await databases.create()) });
		const opened = await openStore(database, { error() {} }, { isSameRecord: async () => false });
		await store(opened, TALK, [
			message(3, "user", "And that?"),
			message(2, "user", "What is this?"),
			message(1, "agent", "Hello"),
			eventAt(4, "ActionEvent", "agent", { llm_response_id: "response-1" }),
			eventAt(5, "ConversationStateUpdateEvent", "environment", { key: "title", value: "T" }),
		]);
		await store(opened, FAILED, [failure(1, "First"), failure(2, "Second")]);
		expect(await shown(opened)).toEqual([NOTHING, NOTHING]);
		return opened;
	}

	async function derive(of: Store) {
		const progress: [examined: number, isComplete: boolean][] = [];
		const steps: DerivationStep[] = [];
		const saveDerivation = async (step: DerivationStep) => {
			steps.push(step);
			await of.saveDerivation(step);
		};
		await deriveActivities({ ...of, saveDerivation }, format, new AbortController().signal, (...step) =>
			progress.push(step),
		);
		return { progress, responses: steps.flatMap(({ responses = [] }) => responses) };
	}

	test("get them once, with the responses of models", async () => {
		await using opened = await filled();
		expect(await derive(opened)).toEqual({
			progress: [
				[6, false],
				[6, true],
			],
			responses: [{ sequence: 4n, llmResponseId: responseKey("response-1") }],
		});
		expect(await shown(opened)).toEqual([OF_TALK, OF_FAILED]);
		expect(await derive(opened)).toEqual({ progress: [], responses: [] });
		expect(await opened.getDerivation(NAME)).toMatchObject({ through: COMPLETE });
	});

	test("get them from where an interrupted run ended, and from the beginning if the rules have changed", async () => {
		await using opened = await filled();
		await derive(opened);
		const { version = 0 } = (await opened.getDerivation(NAME)) ?? {};

		await using interrupted = await filled();
		await interrupted.saveDerivation({ name: NAME, version, through: 5n });
		expect(await derive(interrupted)).toEqual({
			progress: [
				[2, false],
				[2, true],
			],
			responses: [],
		});
		expect(await shown(interrupted)).toEqual([NOTHING, OF_FAILED]);

		await interrupted.saveDerivation({ name: NAME, version: version - 1, through: COMPLETE });
		expect((await derive(interrupted)).progress.at(-1)).toEqual([6, true]);
		expect(await shown(interrupted)).toEqual([OF_TALK, OF_FAILED]);
	});

	test("get them also if one of the events cannot be read", async () => {
		await using opened = await filled();
		const { batch: parsed } = format.parse(FAILED, Buffer.from(JSON.stringify([failure(3, "Third")])));
		const damaged = parsed.events.map(({ error: _, ...one }) => ({
			...one,
			text: Buffer.from("{"),
			message: undefined,
		}));
		await appendEvents(opened, batch(FAILED, damaged));
		expect((await derive(opened)).progress).toEqual([
			[7, false],
			[7, true],
		]);
		expect(await shown(opened)).toEqual([OF_TALK, OF_FAILED]);
	});
});
