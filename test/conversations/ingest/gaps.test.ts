import { randomUUID } from "node:crypto";
import { describe, expect, onTestFinished, test } from "vitest";
import { readExactJson, stringifyExactJson } from "../../../src/record/json/exact-json.ts";
import { type ExactJsonObject, isJsonObject, memberOf } from "../../../src/record/json/json-value.ts";
import type { Gap } from "../../../src/store/gaps.ts";
import { type CapturedSequence, capturedSequences } from "../../support/fixtures.ts";
import { Random } from "../../support/random.ts";
import { LiveService } from "./live-service.ts";

const BLUE = { sender: "other", owner: "blue" };

async function open(): Promise<LiveService> {
	const service = await LiveService.open();
	onTestFinished(() => service[Symbol.asyncDispose]());
	return service;
}

/** Posts of a sequence, with one event in each batch. */
interface Posts {
	readonly records: readonly string[];
	readonly events: readonly ExactJsonObject[];
}

function postsOf({ posts }: CapturedSequence): Posts {
	return {
		records: posts.flatMap(({ webhook, body }) => (webhook === "conversations" ? [body] : [])),
		events: posts.flatMap(({ webhook, body }) => (webhook === "events" ? objectsIn(body) : [])),
	};
}

function objectsIn(body: string): ExactJsonObject[] {
	const events = readExactJson(body);
	return Array.isArray(events) ? events.filter(isJsonObject) : [];
}

const idOf = (event: ExactJsonObject) => String(event.id);

/** Returns the ids of the events that posts name. */
function namedIn({ records, events }: Posts): Set<string> {
	const leaves = records.map((body) => memberOf(readExactJson(body), "leaf_event_id"));
	const reported = events.flatMap((event) => [event.parent_id, memberOf(event.value, "leaf_event_id")]);
	const named = [...leaves, ...reported].filter((id) => typeof id === "string");
	return new Set(named.filter((id) => id !== "__root__"));
}

/** Posts a sequence as a conversation of its own, whose id it returns. */
async function post(
	service: LiveService,
	{ conversationId }: CapturedSequence,
	{ records, events }: Posts,
	random?: Random,
) {
	const id = randomUUID();
	const steps: (() => Promise<unknown>)[] = [];
	const batches: ExactJsonObject[][] = [];
	const shuffled = [...events, ...(random === undefined ? [] : events.slice(0, random.integer(0, events.length + 1)))];
	random?.shuffle(shuffled);
	while (shuffled.length > 0) batches.push(shuffled.splice(0, random?.integer(1, 6) ?? 1));
	for (const batch of batches) steps.push(() => service.batch(id, batch));
	for (const body of records) {
		const own = body.replaceAll(conversationId, id);
		steps.splice(random?.integer(0, steps.length + 1) ?? 0, 0, () => service.post(own));
	}
	for (const step of steps) await step();
	return id;
}

const missing = (gaps: readonly Gap[]) => gaps.map((gap) => gap.missing).toSorted();

describe("the sequences of a real sender", () => {
	const sequences = capturedSequences().filter(({ posts }) => posts.length > 1);

	test("leave no gap when all has arrived, in order, in another order, repeated and in other batches", async () => {
		const service = await open();
		const random = Random.ofTest();
		const found: unknown[] = [];
		for (const sequence of sequences) {
			const id = randomUUID();
			for (const { webhook, body } of sequence.posts)
				if (webhook === "events") await service.batch(id, body);
				else await service.post(body.replaceAll(sequence.conversationId, id));
			found.push(...(await service.store.listGaps(id)).map((gap) => [sequence.name, "in order", gap]));
			const other = await post(service, sequence, postsOf(sequence), random);
			found.push(...(await service.store.listGaps(other)).map((gap) => [sequence.name, "shuffled", gap]));
		}
		expect(found).toEqual([]);
	});

	test("have exactly the gap of the event that is left out, until it arrives", async () => {
		const service = await open();
		const random = Random.ofTest();
		let seen = 0;
		for (const sequence of sequences) {
			const all = postsOf(sequence);
			const candidates = [...all.events];
			random.shuffle(candidates);
			for (const lost of candidates.slice(0, 4)) {
				const rest = { ...all, events: all.events.filter((event) => idOf(event) !== idOf(lost)) };
				const id = await post(service, sequence, rest, random);
				const wanted = namedIn(rest).has(idOf(lost)) ? [idOf(lost)] : [];
				expect([sequence.name, missing(await service.store.listGaps(id))]).toEqual([sequence.name, wanted]);
				seen += wanted.length;
				await service.batch(id, [lost]);
				expect([sequence.name, await service.store.listGaps(id)]).toEqual([sequence.name, []]);
			}
		}
		expect(seen).toBeGreaterThan(20);
	});

	test("have no record while only events have arrived", async () => {
		const service = await open();
		const sequence = sequences.find(({ name }) => name === "resume-cycle");
		if (sequence === undefined) throw new Error("there is no such sequence");
		const all = postsOf(sequence);
		const id = await post(service, sequence, { ...all, records: [] });
		expect((await service.store.listGaps(id)).map(({ kind }) => kind)).toEqual(["no_record"]);
		await service.post(all.records.at(-1)?.replaceAll(sequence.conversationId, id) ?? "");
		expect(await service.store.listGaps(id)).toEqual([]);
	});
});

function eventAfter(id: string, parent: string | null): ExactJsonObject {
	const timestamp = "2026-01-01T00:00:00";
	return { id, parent_id: parent, timestamp, source: "agent", kind: "MessageEvent" };
}

const RECORD: ExactJsonObject = {
	workspace: { kind: "LocalWorkspace", working_dir: "/workspace" },
	agent: { kind: "ACPAgent", acp_command: ["acp"] },
};

test("a fork has no gap for the events of its source, when these arrive after its own", async () => {
	const service = await open();
	const [source, fork] = [randomUUID(), randomUUID()];
	const record = (id: string, more: ExactJsonObject = {}) => ({ id, ...RECORD, ...more });
	await service.post(record(source));
	await service.batch(fork, [eventAfter("own", "copied")]);
	await service.post(record(fork, { forked_from_conversation_id: source }));
	expect(missing(await service.store.listGaps(fork))).toEqual(["copied"]);
	await service.batch(source, [eventAfter("copied", null)]);
	expect(await service.store.listGaps(fork)).toEqual([]);
	await service.batch(fork, [eventAfter("last", "lost")]);
	expect(missing(await service.store.listGaps(fork))).toEqual(["lost"]);
});

const STATE = (id: string, leaf?: string): ExactJsonObject => ({
	...{ id, timestamp: "2026-01-01T00:00:00", source: "environment", kind: "ConversationStateUpdateEvent" },
	...{
		key: "full_state",
		value: { ...RECORD, execution_status: "idle", ...(leaf === undefined ? {} : { leaf_event_id: leaf }) },
	},
});

test("a fork of which no record is posted has no gap while its source is known", async () => {
	const service = await open();
	const [source, fork, stranger] = [randomUUID(), randomUUID(), randomUUID()];
	await service.batch(source, [STATE("s1"), eventAfter("one", null), eventAfter("two", "one")]);
	expect((await service.store.listGaps(source)).map(({ kind }) => kind)).toEqual(["no_record"]);

	// The agent server posts no record of a fork until it is paused, changed or deleted.
	await service.batch(fork, [STATE("s2", "one")]);
	await service.batch(fork, [eventAfter("own", "one"), eventAfter("last", "own")]);
	await service.batch(fork, [STATE("s3", "last")]);
	expect(await service.store.listGaps(fork)).toEqual([]);
	expect((await service.record(fork))?.leaf_event_id).toBe("last");
	await service.batch(fork, [eventAfter("next", "lost")]);
	expect(missing(await service.store.listGaps(fork))).toEqual(["lost"]);

	await service.events.json(stranger, Buffer.from(stringifyExactJson([STATE("s4", "one")])), BLUE, {
		aborted: false,
	});
	expect(missing(await service.store.listGaps(stranger))).toEqual(["", "one"]);
});
