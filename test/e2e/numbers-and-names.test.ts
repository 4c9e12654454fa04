import { create, type JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { LLMSchema } from "../../gen/conversations/v1/llm_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { getText, ingestClient, PROTOCOLS, postWebhook, readClient, rpcPath } from "../support/clients.ts";
import { expectedJson } from "../support/expected-json.ts";
import { record } from "../support/fixtures.ts";
import { recordJson, recordMessage } from "../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const { plan } = new RecordFormat();
let service: TestService;

beforeAll(async () => {
	service = await startTestService();
});
afterAll(() => service[Symbol.asyncDispose]());

async function post(text: string): Promise<{ status: number; text: string }> {
	const response = await postWebhook(service, KEY, text);
	return { status: response.status, text: await response.text() };
}

const accepted = { status: 200, text: '{"success":true}' };
const stored = { success: true, repetition: false };

/** Returns the digits of the seed in the text of a record. JSON.parse would round them. */
function seedIn(text: string): string | undefined {
	return /"seed":(-?\d+)[,}]/.exec(text)?.[1];
}

/** Returns a record with a native agent whose seed has the given digits. */
function seeded(seed: string): { id: string; text: string } {
	const json = record({ agent: { kind: "Agent", llm: { model: "m", seed: "SEED" } } });
	return { id: String(json.id), text: JSON.stringify(json).replace('"SEED"', seed) };
}

describe("a record of any size is read back as it was posted", () => {
	/** A small body, for the usual intake thread, whose encoded record is larger than 1 MiB: 11 bytes for each number. */
	const LARGE = JSON.stringify(record({ agent_state: { numbers: Array.from({ length: 100_000 }, () => 1) } }));
	const usage = { prompt_tokens: 2 ** 31, completion_tokens: 2 ** 45, context_window: 2 ** 53 - 1, response_id: "r" };
	const numbers = {
		created_at: "2100-01-01T00:00:00Z",
		updated_at: "2199-12-31T23:59:59.999999Z",
		max_iterations: 2 ** 40,
		stats: { usage_to_metrics: { m: { token_usages: Array.from({ length: 40 }, () => usage) } } },
		agent: { kind: "Agent", llm: { model: "m", seed: -5, num_retries: -(2 ** 40), timeout: 2 ** 32 } },
	};
	/** Number of positions that are tried, each one byte further. The numbers are about 12 bytes apart. */
	const ALIGNMENTS = 64;

	test.each([
		["64 KiB from the start", 65_536, (filler: string) => ({ persistence_dir: filler })],
		["64 KiB from the end", 65_536, (filler: string) => ({ agent_state: { filler } })],
		["128 KiB from the end", 131_072, (filler: string) => ({ agent_state: { filler } })],
	])("with numbers beyond 2^31 at positions around %s", async (_, boundary, place) => {
		const client = readClient(service, "gRPC", KEY);
		for (let shift = 0; shift < ALIGNMENTS; shift++) {
			// After an encoded record over 1 MiB, an encoder replaces its grown buffer by a small one.
			if (shift % 4 === 0) expect(await post(LARGE)).toEqual(accepted);
			const json: JsonObject = record({ ...numbers, ...place("x".repeat(boundary - 100 - shift)) });
			expect([shift, await post(JSON.stringify(json))]).toEqual([shift, accepted]);
			expect(JSON.parse(await getText(service, KEY, json.id))).toEqual(expectedJson(plan, json));
			const { conversation } = await client.getConversation({ id: String(json.id) });
			expect(conversation && recordJson(conversation)).toEqual(expectedJson(plan, json));
		}
	});
});

describe("member names are read back as they were sent", () => {
	const NAMES = ["\\\\", '\\"', "\\u0061", "\\/", "\\n", "\\u0000", "é\\u0301", "\\ud83d\\ude00", "a\\\\", 'a\\"'];

	test("to the webhook, with and without escapes, whichever names the body before had", async () => {
		for (const before of NAMES)
			for (const name of NAMES) {
				const [first, second] = [record({ agent_state: "STATE" }), record({ agent_state: "STATE" })];
				const body = (json: JsonObject, text: string) => JSON.stringify(json).replace('"STATE"', () => text);
				expect(await post(body(first, `{"a":1,"${before}":1}`))).toEqual(accepted);
				expect(await post(body(second, `{"a":1,"${name}":2}`))).toEqual(accepted);
				// Compared as text, because parsing in the test could alter names in the same way as the service.
				const written = JSON.stringify(JSON.parse(`"${name}"`));
				const state = name === "\\u0061" ? ['"agent_state":{"a":2}'] : ['"a":1', `${written}:2`];
				const text = await getText(service, KEY, second.id);
				expect(state.filter((part) => !text.includes(part))).toEqual([]);
			}
	});

	test.each(PROTOCOLS)("over %s", async (protocol) => {
		const client = ingestClient(service, protocol, KEY);
		const names = ["\\", '"', "\n", "\u0000", "a\\", 'a"'];
		for (const before of names)
			for (const name of names) {
				const [first, second] = [before, name].map((other) => record({ agent_state: { a: 1, [other]: 2 } }));
				for (const json of [first, second])
					expect(await client.ingestConversation({ conversation: recordMessage(json ?? {}) })).toMatchObject(stored);
				const text = await getText(service, KEY, second?.id);
				expect(['"a":1', `${JSON.stringify(name)}:2`].filter((part) => !text.includes(part))).toEqual([]);
			}
	});

	test("at the top level of the record and in maps", async () => {
		const json = JSON.stringify(record({ blocked_actions: "MAP" }));
		const id = JSON.parse(json).id;
		const text = json.replace('"MAP"', () => '{"\\"":"one","\\\\":"two"}').replace("{", () => '{"\\\\\\"":[1],');
		expect(await post(text)).toEqual(accepted);
		const read = await getText(service, KEY, id);
		for (const part of ['"\\"":"one"', '"\\\\":"two"', '"\\\\\\"":[1]']) expect(read).toContain(part);
	});
});

describe("a 64-bit integer", () => {
	const EXACT = [
		"9007199254740993",
		"-9007199254740993",
		"9223372036854775807",
		"-9223372036854775808",
		"1234567890123456789",
	];

	test.each(EXACT)("%s posted to the webhook is read back exactly", async (digits) => {
		const { id, text } = seeded(digits);
		expect(await post(text)).toEqual(accepted);
		expect(seedIn(await getText(service, KEY, id))).toBe(digits);
		for (const protocol of PROTOCOLS) {
			const { conversation } = await readClient(service, protocol, KEY).getConversation({ id });
			expect(conversation?.agent?.kind).toMatchObject({ case: "agent", value: { llm: { seed: BigInt(digits) } } });
		}
	});

	test.each(PROTOCOLS.flatMap((protocol) => EXACT.map((digits) => [digits, protocol] as const)))(
		"%s ingested over %s is read back exactly",
		async (digits, protocol) => {
			const conversation = recordMessage(record({ agent: { kind: "Agent", llm: { model: "m" } } }));
			if (conversation.agent?.kind.case !== "agent") throw new Error("unreachable");
			conversation.agent.kind.value.llm = create(LLMSchema, { model: "m", seed: BigInt(digits) });
			const first = await ingestClient(service, protocol, KEY).ingestConversation({ conversation });
			expect(first).toMatchObject({ success: true, repetition: false });
			const text = await getText(service, KEY, conversation.id);
			expect(seedIn(text)).toBe(digits);
			// The record is a duplicate when it is posted as it was read.
			expect(await post(text)).toEqual(accepted);
			const again = await ingestClient(service, protocol, KEY).ingestConversation({ conversation });
			expect(again).toEqual({ ...first, repetition: true });
		},
	);

	test.each(["9223372036854775808", "-9223372036854775809", "123456789012345678901234567890"])(
		"out of range, %s, is refused by the webhook",
		async (digits) => {
			const { status, text } = await post(seeded(digits).text);
			expect(status).toBe(422);
			expect(JSON.parse(text)).toMatchObject({ detail: [{ loc: ["body", "agent", "llm", "seed"] }] });
			expect(JSON.parse(text).detail).toHaveLength(1);
			expect(text).toContain(`"input":${digits}`);
		},
	);

	test("out of range is refused over Connect JSON", async () => {
		const url = service.http + rpcPath(ConversationIngestService.method.ingestConversation);
		const conversation = { agent: { agent: { llm: { seed: "9223372036854775808" } } } };
		const response = await fetch(url, {
			method: "POST",
			headers: { "Content-Type": "application/json", "X-Access-Token": KEY },
			body: JSON.stringify({ conversation }),
		});
		expect([response.status, await response.json()]).toMatchObject([400, { code: "invalid_argument" }]);
	});

	test("may be written with a fraction of zero or with an exponent", async () => {
		for (const [given, digits] of [
			["500.0", "500"],
			["1e3", "1000"],
			["1e18", "1000000000000000000"],
		] as const) {
			const { id, text } = seeded(given);
			expect(await post(text)).toEqual(accepted);
			expect(seedIn(await getText(service, KEY, id))).toBe(digits);
		}
	});
});

test("free-form numbers that a double can hold are read back as they were posted", async () => {
	const json = record({ agent_state: { a: 0.1, b: 1e22, c: 9007199254740992, d: -1e-9, e: 1.7976931348623157e308 } });
	expect(await post(JSON.stringify(json))).toEqual(accepted);
	expect(JSON.parse(await getText(service, KEY, json.id))).toEqual(expectedJson(plan, json));
});
