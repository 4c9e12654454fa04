import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { Code } from "@connectrpc/connect";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ServiceProcess } from "../support/child.ts";
import { getText, postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { callRaw } from "../support/raw-rpc.ts";
import { KEY } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

/** Default of MAX_BODY_BYTES. */
const LIMIT = 16 * 1024 * 1024;
/** Most memory that the service may take for one of these bodies beside ordinary ones, in bytes. */
const MEMORY = 1024 ** 3;
/** How long anyone may wait for an answer, in milliseconds: a third of what the real sender gives it. */
const PATIENCE = 10_000;

let folder: TempFolder;
let service: ServiceProcess;
/** Most memory that the service was seen to take, in bytes. */
let peak: number;

beforeEach(async () => {
	peak = 0;
	folder = new TempFolder();
	const env = { ENCRYPTION_KEY: randomBytes(32).toString("base64") };
	service = await ServiceProcess.start(folder.file("conversations.db"), env);
});
afterEach(async () => {
	await service[Symbol.asyncDispose]();
	folder[Symbol.dispose]();
});

/** Bytes that are left for one more member of a record. */
const ROOM = LIMIT - 1000;

/** A record with one more member, or another value of one that it has: the last one counts. */
function withMember(name: string, value: string): string {
	return `${JSON.stringify(record()).slice(0, -1)},"${name}":${value}}`;
}

/** As many items as there is room for, with commas between them. */
function items(item: (index: number) => string): string {
	const parts: string[] = [];
	for (let [length, index] = [0, 0]; length < ROOM - 100; index++) {
		const part = item(index);
		parts.push(part);
		length += part.length + 1;
	}
	return parts.join(",");
}

/** Bodies with the statuses that are right for them. */
const BODIES: readonly (readonly [name: string, statuses: readonly number[], body: () => string])[] = [
	["millions of numbers where strings belong", [422], () => withMember("invoked_skills", `[${items(() => "1")}]`)],
	["millions of strings", [422], () => withMember("invoked_skills", `[${items(() => '"a"')}]`)],
	["millions of empty models", [422], () => withMember("available_models", `[${items(() => "{}")}]`)],
	["a million wrong tags", [422], () => withMember("tags", `{${items((index) => `"A${index}":1`)}}`)],
	["a million unnamed members", [422], () => withMember("a", `0,${items((index) => `"b${index}":1`)}`)],
	[
		"a million secrets",
		[422],
		() => {
			const headers = items((index) => `"h${index}":"s"`);
			return withMember("agent", `{"kind":"Agent","llm":{"model":"m","extra_headers":{${headers}}}}`);
		},
	],
	["millions of free-form secrets", [422], () => withMember("agent_state", `{"tokens":[${items(() => '"s"')}]}`)],
	["millions of free-form values", [422], () => withMember("agent_state", `{"a":[${items(() => "[]")}]}`)],
	[
		"millions of analyzers",
		[422],
		() => withMember("security_analyzer", `{"kind":"EnsembleSecurityAnalyzer","analyzers":[${items(() => "{}")}]}`),
	],
	["a deep nest", [422], () => withMember("agent_state", `{"a":${"[".repeat(ROOM / 2)}${"]".repeat(ROOM / 2)}}`)],
	["a deep nest without an end", [422], () => withMember("agent_state", "[".repeat(ROOM))],
	["a number of millions of digits", [422], () => withMember("max_iterations", `1${"0".repeat(ROOM - 1)}`)],
	[
		"a million names with escapes",
		[422],
		() => withMember("agent_state", `{${items((index) => `"\\u0061${index}":9007199254740993`)}}`),
	],
	// Of members of one name the last one counts.
	["millions of members of one name", [200, 422], () => withMember("agent_state", `{${items(() => '"a":1')}}`)],
	["one string", [200], () => withMember("title", `"${"x".repeat(ROOM)}"`)],
	["one string of escapes", [200], () => withMember("title", `"${"\\n".repeat(ROOM / 2)}"`)],
];

/** Runs an action while ordinary posts and reads go on, all of which must be answered with success in time. */
async function amongOrdinaryWork<Result>(action: () => Promise<Result>): Promise<Result> {
	const json = record({ title: "ordinary" });
	const problems: unknown[] = [];
	let over = false;
	const ordinary = async (worker: number): Promise<void> => {
		for (let count = 0; !over || count === 0; count++) {
			const start = performance.now();
			const posted = await postWebhook(service, KEY, JSON.stringify({ ...json, title: `${worker} ${count}` }));
			const read = await getText(service, KEY, json.id);
			const waited = performance.now() - start;
			if (posted.status !== 200 || read === "" || waited > PATIENCE) problems.push({ status: posted.status, waited });
			peak = Math.max(peak, service.residentBytes);
			await sleep(20);
		}
	};
	const workers = Promise.all([0, 1, 2].map((worker) => ordinary(worker).catch((error) => problems.push(error))));
	const result = await action().finally(() => {
		over = true;
	});
	await workers;
	expect(problems).toEqual([]);
	return result;
}

describe("a body that is as large as it may be does not hold up others, or take all memory", () => {
	test.each(BODIES)("%s", { timeout: 60_000 }, async (_, statuses, body) => {
		const packed = gzipSync(body(), { level: 1 });
		const response = await amongOrdinaryWork(() => postWebhook(service, KEY, packed, { "Content-Encoding": "gzip" }));
		const text = await response.text();
		expect(statuses).toContain(response.status);
		// What is wrong is told to a person, who does not read thousands of lines.
		expect(text.length).toBeLessThan(1_000_000);
		expect(peak).toBeLessThan(MEMORY);
	});

	test.each([
		["millions of strings", 0x4a, 2],
		["millions of empty models", 0xea, 3],
	])("%s over gRPC", { timeout: 60_000 }, async (_, tag, size) => {
		// Within field 1, conversation: field 9, invoked_skills among others, or 29, available_models, each of them empty.
		const item = size === 2 ? [tag, 0x00] : [tag, 0x01, 0x00];
		const inner = Buffer.alloc(Math.floor((LIMIT - 100) / size) * size).fill(Buffer.from(item));
		const length: number[] = [];
		for (let rest = inner.length; rest > 0; rest = Math.floor(rest / 128))
			length.push((rest % 128) + (rest > 127 ? 128 : 0));
		const message = Buffer.concat([Buffer.from([0x0a, ...length]), inner]);
		const answer = await amongOrdinaryWork(() =>
			callRaw(service, "gRPC", ConversationIngestService.method.ingestConversation, message, KEY),
		);
		expect(answer.code).toBe(Code.InvalidArgument);
		expect(peak).toBeLessThan(MEMORY);
	});
});

test("a stored record that is as large as it may be can be read while others work", { timeout: 60_000 }, async () => {
	const json = record({
		agent_state: Object.fromEntries(Array.from({ length: 5000 }, (_, index) => [`m${index}`, "x".repeat(2500)])),
	});
	const posted = await amongOrdinaryWork(() => postWebhook(service, KEY, JSON.stringify(json)));
	expect(posted.status).toBe(200);
	const texts = await amongOrdinaryWork(() => Promise.all([1, 2, 3].map(() => getText(service, KEY, json.id))));
	for (const text of texts) expect(JSON.parse(text).agent_state).toEqual(json.agent_state);
	expect(peak).toBeLessThan(MEMORY);
});
