import { setTimeout as delay } from "node:timers/promises";
import { type Endpoints, WEBHOOK } from "../support/clients.ts";
import { RawHttp } from "../support/raw-http.ts";
import { FRAME, frame, headerBlock, RawHttp2 } from "../support/raw-http2.ts";
import { httpAddress, openSocket, responseTo } from "../support/raw-socket.ts";
import { KEY } from "../support/service.ts";
import { type Report, unlessSilent } from "./report.ts";
import type { Run } from "./run.ts";
import { quiet, Subject } from "./subject.ts";

const MiB = 2 ** 20;
/** Maximum size of a body, small so that endless bodies are soon refused. */
const MAX_BODY_BYTES = 100_000;
/** Maximum resident memory of the service, in bytes. */
const MAX_MEMORY = 600 * MiB;
/** Number of connections per listener on which the client sends nothing. */
const SILENT_CONNECTIONS = 1_000;
/** Number of concurrent uploads that end in the middle. */
const ABORTED_UPLOADS = 300;

/** A way to misbehave. `act` does it and returns the outcome. */
interface BadClient {
	readonly name: string;
	/** Correct outcome. */
	readonly correct: string;
	readonly act: (service: Endpoints) => Promise<string>;
}

/** Clients that violate protocols, flood the service, or leave in the middle. */
export const badClients: Run = {
	name: "bad-clients",
	about: "malformed HTTP, floods of frames and headers, aborted uploads, thousands of silent connections",
	counted: "times each",
	long: 20,
	short: 1,
	async run(count, _random, report) {
		await using subject = await Subject.start(report, { MAX_BODY_BYTES: String(MAX_BODY_BYTES) });
		const load = async (part: number): Promise<void> => {
			// Takes as long as the service tolerates silence, so that the short form does it only once.
			const silent =
				part === 0 || count >= badClients.long ? openSilentConnections(subject.service, report) : undefined;
			for (let round = 0; round < count / 2; round++)
				for (const client of CLIENTS) await misbehave(subject.service, client, report);
			await silent;
		};
		await subject.amongOrdinary(() => subject.untilSteady(load, quiet(count, badClients), MAX_MEMORY));
		await subject.expectSound();
	},
};

async function misbehave(service: Endpoints, { name, correct, act }: BadClient, report: Report): Promise<void> {
	const answer = await unlessSilent(act(service));
	report.answer(name, answer);
	report.expect(answer === correct, `${name} was answered with ${answer}`);
}

/** Opens connections on both listeners without sending anything, and waits until the service has closed them all. */
async function openSilentConnections(service: Endpoints, report: Report): Promise<void> {
	const addresses = [service.grpc, httpAddress(service)];
	const closed = addresses.flatMap((address) =>
		Array.from({ length: SILENT_CONNECTIONS }, () => {
			const socket = openSocket(address).resume();
			return new Promise<string>((resolve) => socket.on("close", () => resolve("closed")));
		}),
	);
	for (const answer of closed) report.answer("silent connections", await unlessSilent(answer, 60_000));
}

/** What clients send before they end their side, with the answers. */
const HTTP_BYTES: readonly (readonly [name: string, bytes: string, answer: string])[] = [
	["a flood of header fields", `GET / HTTP/1.1\r\nHost: x\r\n${"a: b\r\n".repeat(50_000)}\r\n`, "431"],
	[
		"a length and chunks",
		`POST ${WEBHOOK} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
		"400",
	],
	["the beginning of a preface", "PR", "closed"],
	["the preface of HTTP/2 with something else after it", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "closed"],
];

const overHttp: readonly BadClient[] = [
	...HTTP_BYTES.map(
		([name, bytes, correct]): BadClient => ({
			name,
			correct,
			act: async (service) => {
				const answer = await responseTo(httpAddress(service), bytes, true);
				return /^HTTP\/1\.1 (\d+) /.exec(answer)?.[1] ?? "closed";
			},
		}),
	),
	{
		name: "an endless body in chunks",
		correct: "closed",
		act: async (service) => {
			using client = await new RawHttp(service).connected();
			await client.head({ "X-Access-Token": KEY, "Transfer-Encoding": "chunked" }, WEBHOOK);
			const chunk = "x".repeat(50_000);
			// The service reads at most 1 MiB more than it accepts. The socket buffers take some more.
			for (let sent = 0; sent < 64 * MiB && client.open; sent += chunk.length) await client.chunk(chunk);
			await client.closed();
			return "closed";
		},
	},
	{
		name: `${ABORTED_UPLOADS} uploads that end in the middle`,
		correct: "left",
		act: async (service) => {
			const uploads = Array.from({ length: ABORTED_UPLOADS }, async () => {
				const client = await new RawHttp(service).connected();
				await client.head({ "X-Access-Token": KEY, "Content-Length": "90000" }, WEBHOOK);
				await client.write("x".repeat(50_000));
				client[Symbol.dispose]();
			});
			await Promise.all(uploads);
			return "left";
		},
	},
];

const END_STREAM = 0x1;
const END_HEADERS = 0x4;
/** Maximum wait, in milliseconds, for a write to a server that does not read. */
const MAX_WRITE_WAIT = 200;

function overHttp2(listener: "http" | "grpc"): readonly BadClient[] {
	const call = headerBlock({
		":method": "POST",
		":scheme": "http",
		":path": "/conversations.v1.ConversationService/GetConversation",
		":authority": "x",
		"content-type": listener === "grpc" ? "application/grpc" : "application/proto",
	});
	const addressOf = (service: Endpoints) => (listener === "grpc" ? service.grpc : httpAddress(service));
	/** Sends until the server closes the connection. */
	const flood =
		(bytes: (round: number) => Buffer, rounds: number) =>
		async (service: Endpoints): Promise<string> => {
			using client = await RawHttp2.connect(addressOf(service));
			for (let round = 0; round < rounds && client.open; round++) await client.write(bytes(round));
			await client.closed();
			return "closed";
		};
	/** The same without reading the server's frames. */
	const unreadFlood = (one: Buffer) => async (service: Endpoints) => {
		using client = await RawHttp2.connect(addressOf(service));
		client.pause();
		const many = Buffer.concat(Array.from({ length: 10_000 }, () => one));
		// The server stops reading or closes the connection, so that a write may never finish.
		for (let round = 0; round < 300 && client.open; round++)
			await Promise.race([client.write(many), delay(MAX_WRITE_WAIT, undefined, { ref: false })]);
		return client.open ? "open" : "closed";
	};
	const resets = (round: number) =>
		Buffer.concat(
			Array.from({ length: 100 }, (_, index) => {
				const id = 2 * (round * 100 + index) + 1;
				return Buffer.concat([
					frame(FRAME.headers, END_HEADERS, id, call),
					frame(FRAME.rstStream, 0, id, Buffer.from([0, 0, 0, 8])),
				]);
			}),
		);
	const part = headerBlock({ "x-filler": "y".repeat(100) });
	const continued = (round: number) =>
		round === 0 ? frame(FRAME.headers, 0, 1, call) : frame(FRAME.continuation, 0, 1, part);
	const fields = Array.from({ length: 140 }, (_, index) => headerBlock({ [`x-${index}`]: "y".repeat(90) }));
	const manyFields = async (service: Endpoints) => {
		using client = await RawHttp2.connect(addressOf(service));
		await client.write(frame(FRAME.headers, END_HEADERS | END_STREAM, 1, Buffer.concat([call, ...fields])));
		while (client.open && client.frames(FRAME.rstStream).length === 0) await delay(10);
		return "refused";
	};
	const clients: readonly (readonly [name: string, act: BadClient["act"]])[] = [
		["streams that are reset at once", flood(resets, 1_000)],
		["a header that goes on without end", flood(continued, 10_000)],
		["a flood of PING that reads nothing", unreadFlood(frame(FRAME.ping, 0, 0, Buffer.alloc(8)))],
		["a flood of SETTINGS that reads nothing", unreadFlood(frame(FRAME.settings, 0, 0))],
	];
	return [
		...clients.map(([name, act]): BadClient => ({ name: `${name}, ${listener} listener`, correct: "closed", act })),
		{ name: `a header with many fields, ${listener} listener`, correct: "refused", act: manyFields },
	];
}

const CLIENTS: readonly BadClient[] = [...overHttp, ...overHttp2("http"), ...overHttp2("grpc")];
