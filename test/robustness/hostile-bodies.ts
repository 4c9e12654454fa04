import { randomBytes } from "node:crypto";
import { gzipSync } from "node:zlib";
import type { JsonObject } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
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
	/** Correct outcome. */
	readonly correct: string;
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
	report.expect(answer === correct, `${name} was answered with ${answer}`);
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

/** JSON bodies with their correct status. */
const JSON_BODIES: readonly (readonly [name: string, status: string, body: () => string])[] = [
	["millions of numbers where strings belong", "422", () => withMember("invoked_skills", `[${items(() => "1")}]`)],
	["millions of empty models", "422", () => withMember("available_models", `[${items(() => "{}")}]`)],
	["a million wrong tags", "422", () => withMember("tags", `{${items((index) => `"A${index}":1`)}}`)],
	[
		"a million secrets",
		"422",
		() => {
			const headers = items((index) => `"h${index}":"s"`);
			return withMember("agent", `{"kind":"Agent","llm":{"model":"m","extra_headers":{${headers}}}}`);
		},
	],
	["millions of free-form secrets", "422", () => withMember("agent_state", `{"tokens":[${items(() => '"s"')}]}`)],
	[
		"millions of analyzers",
		"422",
		() => withMember("security_analyzer", `{"kind":"EnsembleSecurityAnalyzer","analyzers":[${items(() => "{}")}]}`),
	],
	[
		"a deep nest",
		"422",
		() => withMember("agent_state", `{"a":${"[".repeat(MEMBER_BYTES / 2)}${"]".repeat(MEMBER_BYTES / 2)}}`),
	],
	["a number of millions of digits", "422", () => withMember("max_iterations", `1${"0".repeat(MEMBER_BYTES - 1)}`)],
	[
		"a million names with escapes",
		"422",
		() => withMember("agent_state", `{${items((index) => `"\\u0061${index}":9007199254740993`)}}`),
	],
	["one string", "200", () => withMember("title", `"${"x".repeat(MEMBER_BYTES)}"`)],
	["more than the limit, packed", "413", () => " ".repeat(20 * LIMIT)],
];

/** Messages with their correct code. Field 1 of the request is the record. */
const MESSAGES: readonly (readonly [name: string, code: string, message: () => Uint8Array])[] = [
	// Field 9 (such as invoked_skills), with an empty value.
	["millions of strings over gRPC", "InvalidArgument", () => inField1(repeated([0x4a, 0x00]))],
	["millions of unknown fields over gRPC", "InvalidArgument", () => inField1(repeated([0xf8, 0x7f, 0x01]))],
	["a deep nest of groups over gRPC", "InvalidArgument", () => inField1(repeated([0xfb, 0x7f]))],
];

/** Returns as many copies of some bytes as fit into a message. */
function repeated(bytes: readonly number[]): Buffer {
	return Buffer.alloc(Math.floor((LIMIT - 100) / bytes.length) * bytes.length).fill(Buffer.from(bytes));
}

/** Returns bytes as field 1 of a message. */
function inField1(bytes: Uint8Array): Uint8Array {
	return new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(bytes).finish();
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
