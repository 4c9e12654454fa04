import { once } from "node:events";
import { type ClientHttp2Session, connect } from "node:http2";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Admission } from "../../../src/transports/admission.ts";
import type { Limits } from "../../../src/transports/connections.ts";
import { framed } from "../../support/raw-rpc.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";
import { listenBare } from "./bare-listener.ts";

const INGEST = "/conversations.v1.ConversationIngestService/IngestConversation";
const LIST = "/conversations.v1.ConversationService/ListConversations";
const INGEST_EVENTS = "/conversations.v1.ConversationEventIngestService/IngestConversationEvents";
const LIST_EVENTS = "/conversations.v1.ConversationEventService/ListConversationEvents";
const REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const WATCH_HEALTH = "/grpc.health.v1.Health/Watch";

/** Begins a call. */
function begin(session: ClientHttp2Session, path: string, fields: Readonly<Record<string, string>> = {}) {
	const headers = { ":method": "POST", ":path": path, "content-type": "application/grpc", te: "trailers", ...fields };
	return session.request(headers).on("error", () => undefined);
}

/** Makes a call with a message. Returns its gRPC status. */
async function statusOf(
	session: ClientHttp2Session,
	path: string,
	message: Buffer,
	fields: Readonly<Record<string, string>> = {},
): Promise<unknown> {
	const stream = begin(session, path, { "x-access-token": KEY, ...fields });
	let status: unknown;
	const keep = (given: Readonly<Record<string, unknown>>) => {
		status = given["grpc-status"] ?? status;
	};
	stream.on("response", keep).on("trailers", keep).resume().end(message);
	await once(stream, "close");
	return status;
}

describe("a service", () => {
	let service: TestService;
	let session: ClientHttp2Session;
	let logged = 0;

	beforeAll(async () => {
		service = await startTestService({ MAX_BODY_BYTES: "1000" });
		session = connect(`http://${service.grpc}`);
	});

	afterAll(async () => {
		session.destroy();
		await service[Symbol.asyncDispose]();
	});

	beforeEach(() => {
		logged = service.log().length;
	});

	test.each([
		[
			"a message that is too large",
			INGEST,
			framed(Buffer.alloc(1_001)),
			{},
			"8",
			{ kind: "too_large", caller: "test" },
		],
		[
			"events that are too large",
			INGEST_EVENTS,
			framed(Buffer.alloc(1_001)),
			{},
			"8",
			{ kind: "too_large", caller: "test" },
		],
		[
			"an unknown compression",
			INGEST,
			Buffer.from([1, 0, 0, 0, 0]),
			{ "grpc-encoding": "snappy" },
			"12",
			{ kind: "unsupported_media_type", caller: "test" },
		],
		["an unknown method", "/conversations.v1.Nothing/Get", framed(Buffer.alloc(0)), {}, "12", { kind: "not_found" }],
	])("logs a request that grpc-js itself refuses: %s", async (_, operation, message, fields, status, refusal) => {
		expect(await statusOf(session, operation, message, fields)).toBe(status);
		const lines = () =>
			service
				.log()
				.slice(logged)
				.split("\n")
				.filter(Boolean)
				.map((line) => JSON.parse(line));
		await expect.poll(lines).toMatchObject([{ event: "request_refused", transport: "grpc", operation, ...refusal }]);
	});

	test.each([
		[LIST, INGEST],
		[LIST_EVENTS, INGEST_EVENTS],
	])("ends a call whose deadline has passed, and logs no failure: %s, %s", async (list, ingest) => {
		expect(await statusOf(session, list, framed(Buffer.alloc(0)), { "grpc-timeout": "1n" })).toMatch(/^[04]$/);
		const stream = begin(session, ingest, { "x-access-token": KEY, "grpc-timeout": "1m" });
		const [answer] = await once(stream, "response");
		expect(answer["grpc-status"]).toBe("4");
		expect(service.log().slice(logged)).toBe("");
	});
});

describe("a listener with limits", () => {
	async function listening(limits: Partial<Limits>, admission?: Admission) {
		const listener = await listenBare(limits, admission);
		const session = connect(`http://127.0.0.1:${listener.address.port}`);
		return {
			session,
			[Symbol.dispose]: () => {
				session.destroy();
				listener.kill();
			},
		};
	}

	test("refuses open calls without a key beyond the maximum, until others have ended", async () => {
		using listener = await listening({}, new Admission(1024, { keyless: { requests: 3, bytes: 1000 } }));
		const { session } = listener;
		const watch = async () => {
			const stream = begin(session, WATCH_HEALTH);
			stream.end(framed(Buffer.alloc(0)));
			const [answer] = await once(stream, "response");
			return { stream, status: answer["grpc-status"] };
		};
		const watches = [await watch(), await watch(), await watch()];
		expect(watches.map(({ status }) => status)).toEqual([undefined, undefined, undefined]);
		expect((await watch()).status).toBe("14");
		watches[0]?.stream.close();
		await expect.poll(async () => (await watch()).status).toBeUndefined();
	});

	test("counts what the messages of open calls hold, and the most that a compressed one can decompress to", async () => {
		const admission = new Admission(1024);
		using listener = await listening({}, admission);
		const { session } = listener;
		const check = begin(session, "/grpc.health.v1.Health/Check");
		check.write(Buffer.concat([Buffer.from([0, 0, 0, 3, 0]), Buffer.alloc(500)]));
		await expect.poll(() => admission.underWay("keyless")).toEqual({ requests: 1, bytes: 505 });
		const packed = begin(session, REFLECTION, { "grpc-encoding": "gzip" });
		packed.write(Buffer.from([1, 0, 0, 0, 1]));
		await expect.poll(() => admission.underWay("keyless")).toEqual({ requests: 2, bytes: 505 + 1024 });
		check.close();
		packed.close();
		await expect.poll(() => admission.underWay("keyless")).toEqual({ requests: 0, bytes: 0 });
	});

	test("keeps nothing counted of a message that a call has handled", async () => {
		const admission = new Admission(1024);
		using listener = await listening({}, admission);
		const { session } = listener;
		const watch = begin(session, WATCH_HEALTH, { "grpc-encoding": "gzip" });
		const zipped = gzipSync(Buffer.alloc(0));
		watch.write(Buffer.concat([Buffer.from([1, 0, 0, 0, zipped.length]), zipped]));
		watch.resume().end();
		await once(watch, "data");
		expect(admission.underWay("keyless")).toEqual({ requests: 1, bytes: 0 });
	});

	test("refuses a message that is too large when more of it has arrived than it may have", async () => {
		using listener = await listening({ readRequestBytes: 100 });
		const stream = begin(listener.session, REFLECTION);
		stream.write(Buffer.concat([Buffer.from([0, 0, 0, 0, 102]), Buffer.alloc(101)]));
		const [answer] = await once(stream, "response");
		expect([answer["grpc-status"], decodeURI(String(answer["grpc-message"]))]).toEqual([
			"8",
			"The request is larger than 100 bytes",
		]);
	});

	test("ends calls whose request takes too long or that are idle, but not watches of the health", async () => {
		using listener = await listening({ requestTime: 300, idleTime: 200 });
		const { session } = listener;
		const watch = begin(session, WATCH_HEALTH);
		watch.end(framed(Buffer.alloc(0)));
		await once(watch, "response");
		const check = begin(session, "/grpc.health.v1.Health/Check");
		check.write(Buffer.from([0]));
		const reflection = begin(session, REFLECTION);
		reflection.write(Buffer.from([0]));
		await Promise.all([once(check, "close"), once(reflection, "close")]);
		expect([check.rstCode, reflection.rstCode]).toEqual([8, 8]);
		expect(watch.closed).toBe(false);
	});

	test("stops reading reflection requests while their responses are not read", async () => {
		using listener = await listening({});
		const { session } = listener;
		const stream = begin(session, REFLECTION);
		// ServerReflectionRequest { file_containing_symbol = 4: "conversations.v1.ConversationInfo" }
		const symbol = Buffer.from("conversations.v1.ConversationInfo");
		const question = framed(Buffer.concat([Buffer.from([0x22, symbol.length]), symbol]));
		const questions = Buffer.concat(Array.from({ length: 50_000 }, () => question));
		stream.write(questions);
		await once(stream, "response");
		let [taken, before] = [session.socket.bytesWritten, 0];
		while (taken !== before) {
			await new Promise((resolve) => setTimeout(resolve, 500));
			[before, taken] = [taken, session.socket.bytesWritten];
		}
		expect(taken).toBeLessThan(questions.length / 2);
	});
});
