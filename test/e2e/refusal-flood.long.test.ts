import { connect } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { type LogLine, ServiceProcess } from "../support/child.ts";
import { WEBHOOK } from "../support/clients.ts";
import { callRaw } from "../support/raw-rpc.ts";
import { httpAddress, responseTo } from "../support/raw-socket.ts";
import { TempFolder } from "../support/temp.ts";

/** Address of a client of this machine in the log. */
const LOOPBACK = /^127\.0\.0\.1:\d+$/;

let folder: TempFolder;
let service: ServiceProcess;

beforeEach(async () => {
	folder = new TempFolder();
	service = await ServiceProcess.start(folder.file("conversations.db"));
});
afterEach(async () => {
	await service[Symbol.asyncDispose]();
	folder[Symbol.dispose]();
});

/** Stops the service. Returns its log lines of the events, and the seconds between its first and its last line. */
async function linesOf(...events: readonly string[]): Promise<{ lines: LogLine[]; seconds: number }> {
	service.signal("SIGTERM");
	expect((await service.exit()).code).toBe(0);
	const all = service.output.stdout
		.trimEnd()
		.split("\n")
		.map((line): LogLine => JSON.parse(line));
	const time = (line: LogLine | undefined) => Date.parse(String(line?.time));
	expect(all.at(-1)).toMatchObject({ event: "stopped" });
	return {
		lines: all.filter(({ event }) => events.includes(String(event))),
		seconds: (time(all.at(-1)) - time(all[0])) / 1000,
	};
}

/** Returns the number of occurrences that lines report: the count of a line about others, and 1 for any other line. */
function total(lines: readonly LogLine[]): number {
	return lines.reduce((sum, { count }) => sum + (typeof count === "number" ? count : 1), 0);
}

test("a flood of posts without a key is logged as ten lines and a count every ten seconds", async () => {
	const request = (fields: string) => `POST ${WEBHOOK} HTTP/1.1\r\nHost: x\r\n${fields}Content-Length: 2\r\n\r\n{}`;
	const [connections, each] = [20, 1_000];
	const requests = request("").repeat(each - 1) + request("Connection: close\r\n");
	const answers = await Promise.all(
		Array.from({ length: connections }, () => responseTo(httpAddress(service), requests)),
	);
	const refused = answers.map((answer) => answer.split("HTTP/1.1 401 ").length - 1);
	expect(refused).toEqual(Array.from({ length: connections }, () => each));
	const { lines, seconds } = await linesOf("request_refused", "lines_left_out");
	const kind = "unauthenticated";
	const refusal = { transport: "http", operation: `POST ${WEBHOOK}`, kind, peer: expect.stringMatching(LOOPBACK) };
	for (const line of lines.slice(0, 10)) expect(line).toMatchObject({ event: "request_refused", ...refusal });
	expect(lines[10]).toMatchObject({ level: "warn", event: "lines_left_out", of: "request_refused", kind });
	expect(total(lines)).toBe(connections * each);
	expect(lines.length).toBeLessThanOrEqual(11 * (1 + seconds / 10));
});

test("refused requests with different paths are all counted in a bounded number of log lines", async () => {
	const paths = Array.from({ length: 3_000 }, (_, index) => `/nowhere/${index}`);
	for (const part of [0, 1, 2])
		await Promise.all(
			paths.slice(part * 1_000, (part + 1) * 1_000).map(async (path) => {
				expect((await fetch(`${service.http}${path}`)).status).toBe(404);
			}),
		);
	const { lines, seconds } = await linesOf("request_refused", "lines_left_out");
	expect(total(lines)).toBe(paths.length);
	expect(lines.length).toBeLessThanOrEqual(11 * (1 + seconds / 10));
});

test("connections with garbage on both ports are all counted in a bounded number of log lines", async () => {
	const send = (address: string): Promise<void> =>
		new Promise((resolve) => {
			const { hostname, port } = new URL(`http://${address}`);
			const socket = connect(Number(port), hostname, () => socket.write("\u0000garbage\r\n\r\n".repeat(4)));
			socket.on("error", () => undefined).on("close", () => resolve());
			socket.resume();
		});
	for (const address of [service.grpc, service.http.slice("http://".length)])
		for (let round = 0; round < 50; round++) await send(address);
	const { lines, seconds } = await linesOf("connection_failed", "lines_left_out");
	expect(total(lines)).toBe(100);
	expect(lines.length).toBeLessThanOrEqual(2 * 11 * (1 + seconds / 10));
	for (const [listener, code] of [
		["grpc", "ERR_HTTP2_ERROR"],
		["http", "HPE_INVALID_METHOD"],
	]) {
		const of = lines.filter((line) => line.listener === listener);
		expect(of[0]).toMatchObject({ event: "connection_failed", code, peer: expect.stringMatching(LOOPBACK) });
		expect(total(of)).toBe(50);
	}
});

test("gRPC calls without a key are all counted in a bounded number of log lines", async () => {
	const { ingestConversation } = ConversationIngestService.method;
	for (let round = 0; round < 20; round++)
		expect((await callRaw(service, "gRPC", ingestConversation, "", undefined)).code).toBe(16);
	const { lines, seconds } = await linesOf("request_refused", "lines_left_out");
	expect(total(lines)).toBe(20);
	expect(lines.length).toBeLessThanOrEqual(11 * (1 + seconds / 10));
	expect(lines[0]).toMatchObject({ event: "request_refused", transport: "grpc", kind: "unauthenticated" });
});
