import { randomBytes } from "node:crypto";
import { gzipSync } from "node:zlib";
import type { JsonObject } from "@bufbuild/protobuf";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { type Endpoints, getText, postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { callRaw, codeName } from "../support/raw-rpc.ts";
import { KEY } from "../support/service.ts";
import { type Report, unlessSilent } from "./report.ts";
import type { Run } from "./run.ts";
import { quiet, Subject } from "./subject.ts";

/** Default of MAX_BODY_BYTES. */
const LIMIT = 16 * 1024 * 1024;
/** Number of bytes available for one additional member of a record. */
const MEMBER_BYTES = LIMIT - 1000;
/** Maximum resident memory of the service while it handles these bodies and ordinary ones, in bytes. */
const MAX_MEMORY = 1024 ** 3;
/** Maximum time for a response to one of these bodies, in milliseconds. */
const RESPONSE_TIMEOUT = 60_000;
/** Maximum size of a response, in bytes. Its violations are for people, who do not read thousands of lines. */
const MAX_RESPONSE_BYTES = 1_000_000;

/** One body. */
interface Hostile {
	readonly name: string;
	/** Correct outcomes. */
	readonly correct: readonly string[];
	readonly send: (service: Endpoints) => Promise<Answer>;
}

/** The status or code of a response, and its size. */
interface Answer {
	readonly answer: string;
	readonly length: number;
}

/** Bodies of the maximum size, one after the other, while ordinary clients continue. */
export const hostileBodies: Run = {
	name: "hostile-bodies",
	about:
		"bodies that are deep, wide, full of violations or secrets, or unpack to more, while ordinary clients are timed",
	counted: "times each",
	long: 6,
	short: 1,
	async run(count, _random, report) {
		await using subject = await Subject.start(report, { ENCRYPTION_KEY: randomBytes(32).toString("base64") });
		const load = async (): Promise<void> => {
			for (let time = 0; time < count / 2; time++)
				for (const hostile of BODIES) await send(subject.service, hostile, report);
		};
		await subject.amongOrdinary(async () => {
			await subject.untilSteady(load, quiet(count, hostileBodies), MAX_MEMORY);
			await readLarge(subject.service, report);
		});
		await subject.expectSound();
	},
};

async function send(service: Endpoints, { name, correct, send }: Hostile, report: Report): Promise<void> {
	const sent = send(service);
	const answer = await unlessSilent(
		sent.then((given) => given.answer),
		RESPONSE_TIMEOUT,
	);
	report.answer(name, answer);
	report.expect(correct.includes(answer), `${name} was answered with ${answer}`);
	if (answer === "silence") return;
	const { length } = await sent;
	report.expect(length < MAX_RESPONSE_BYTES, `${name} was answered with ${length} bytes`);
}

/** Checks that several requests can read a stored record of the maximum size at the same time. */
async function readLarge(service: Endpoints, report: Report): Promise<void> {
	const members = Array.from({ length: 5000 }, (_, index) => [`m${index}`, "x".repeat(2500)]);
	const json = record({ agent_state: Object.fromEntries(members) });
	report.answer("one large record", String((await postWebhook(service, KEY, JSON.stringify(json))).status));
	const texts = await Promise.all([1, 2, 3].map(() => getText(service, KEY, json.id)));
	for (const text of texts) {
		const { agent_state }: JsonObject = JSON.parse(text);
		report.expect(JSON.stringify(agent_state) === JSON.stringify(json.agent_state), "a large record is read otherwise");
	}
}

/** Returns a record with an additional member. If the name occurs twice, its last value counts. */
function withMember(name: string, value: string): string {
	return `${JSON.stringify(record()).slice(0, -1)},"${name}":${value}}`;
}

/** Returns as many items as fit into a body, separated by commas. */
function items(item: (index: number) => string): string {
	const parts: string[] = [];
	for (let [length, index] = [0, 0]; length < MEMBER_BYTES - 100; index++) {
		const part = item(index);
		parts.push(part);
		length += part.length + 1;
	}
	return parts.join(",");
}

/** JSON bodies with their correct statuses. */
const JSON_BODIES: readonly (readonly [name: string, statuses: readonly string[], body: () => string])[] = [
	["millions of numbers where strings belong", ["422"], () => withMember("invoked_skills", `[${items(() => "1")}]`)],
	["millions of strings", ["422"], () => withMember("invoked_skills", `[${items(() => '"a"')}]`)],
	["millions of empty models", ["422"], () => withMember("available_models", `[${items(() => "{}")}]`)],
	["a million wrong tags", ["422"], () => withMember("tags", `{${items((index) => `"A${index}":1`)}}`)],
	["a million unnamed members", ["422"], () => withMember("a", `0,${items((index) => `"b${index}":1`)}`)],
	[
		"a million secrets",
		["422"],
		() => {
			const headers = items((index) => `"h${index}":"s"`);
			return withMember("agent", `{"kind":"Agent","llm":{"model":"m","extra_headers":{${headers}}}}`);
		},
	],
	["millions of free-form secrets", ["422"], () => withMember("agent_state", `{"tokens":[${items(() => '"s"')}]}`)],
	["millions of free-form values", ["422"], () => withMember("agent_state", `{"a":[${items(() => "[]")}]}`)],
	[
		"millions of analyzers",
		["422"],
		() => withMember("security_analyzer", `{"kind":"EnsembleSecurityAnalyzer","analyzers":[${items(() => "{}")}]}`),
	],
	[
		"a deep nest",
		["422"],
		() => withMember("agent_state", `{"a":${"[".repeat(MEMBER_BYTES / 2)}${"]".repeat(MEMBER_BYTES / 2)}}`),
	],
	["a deep nest without an end", ["422"], () => withMember("agent_state", "[".repeat(MEMBER_BYTES))],
	["a number of millions of digits", ["422"], () => withMember("max_iterations", `1${"0".repeat(MEMBER_BYTES - 1)}`)],
	[
		"a million names with escapes",
		["422"],
		() => withMember("agent_state", `{${items((index) => `"\\u0061${index}":9007199254740993`)}}`),
	],
	// The last of several members with the same name counts.
	["millions of members of one name", ["200", "422"], () => withMember("agent_state", `{${items(() => '"a":1')}}`)],
	["one string", ["200"], () => withMember("title", `"${"x".repeat(MEMBER_BYTES)}"`)],
	["one string of escapes", ["200"], () => withMember("title", `"${"\\n".repeat(MEMBER_BYTES / 2)}"`)],
	["more than the limit, packed", ["413"], () => " ".repeat(20 * LIMIT)],
];

/** Messages with their correct codes. Field 1 of the request is the record. */
const MESSAGES: readonly (readonly [name: string, codes: readonly string[], message: () => Buffer])[] = [
	// Fields 9 (such as invoked_skills) and 29 (available_models), each with an empty value.
	["millions of strings over gRPC", ["InvalidArgument"], () => inField1(repeated([0x4a, 0x00]))],
	["millions of empty models over gRPC", ["InvalidArgument"], () => inField1(repeated([0xea, 0x01, 0x00]))],
	["millions of unknown fields over gRPC", ["InvalidArgument"], () => inField1(repeated([0xf8, 0x7f, 0x01]))],
	["a deep nest of messages over gRPC", ["InvalidArgument"], () => nested(100_000)],
	["a deep nest of groups over gRPC", ["InvalidArgument"], () => inField1(repeated([0xfb, 0x7f]))],
];

/** Returns as many copies of some bytes as fit into a message. */
function repeated(bytes: readonly number[]): Buffer {
	return Buffer.alloc(Math.floor((LIMIT - 100) / bytes.length) * bytes.length).fill(Buffer.from(bytes));
}

/** Returns bytes as field 1 of a message. */
function inField1(bytes: Uint8Array): Buffer {
	return Buffer.concat([headOfField1(bytes.length), bytes]);
}

/** Returns tag and length of field 1. */
function headOfField1(size: number): Buffer {
	const length: number[] = [];
	for (let rest = size; rest > 0; rest = Math.floor(rest / 128)) length.push((rest % 128) + (rest > 127 ? 128 : 0));
	return Buffer.from([0x0a, ...(size === 0 ? [0] : length)]);
}

/** Returns field 1 nested in field 1, many times. */
function nested(depth: number): Buffer {
	const heads: Buffer[] = [];
	let size = 0;
	for (let level = 0; level < depth; level++) {
		const head = headOfField1(size);
		heads.push(head);
		size += head.length;
	}
	return Buffer.concat(heads.reverse());
}

const BODIES: readonly Hostile[] = [
	...JSON_BODIES.map(([name, correct, body]): Hostile => {
		// Kept for the next load: making a body takes longer than sending it.
		let packed: Buffer | undefined;
		return {
			name,
			correct,
			send: async (service) => {
				packed ??= gzipSync(body(), { level: 1 });
				const response = await postWebhook(service, KEY, packed, { "Content-Encoding": "gzip" });
				return { answer: String(response.status), length: (await response.text()).length };
			},
		};
	}),
	...MESSAGES.map(
		([name, correct, message]): Hostile => ({
			name,
			correct,
			send: async (service) => {
				const ingest = ConversationIngestService.method.ingestConversation;
				const { code, message: text } = await callRaw(service, "gRPC", ingest, message(), KEY);
				return { answer: codeName(code), length: text.length };
			},
		}),
	),
];
