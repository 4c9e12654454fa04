import { setTimeout as delay } from "node:timers/promises";
import { type Endpoints, postWebhook, WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import type { Random } from "../support/random.ts";
import { RawHttp } from "../support/raw-http.ts";
import { httpAddress, openSocket } from "../support/raw-socket.ts";
import { KEY } from "../support/service.ts";
import { type Report, unlessSilent } from "./report.ts";
import type { Run } from "./run.ts";
import { quiet, Subject } from "./subject.ts";

/** Maximum resident memory of the service, in bytes. Large responses fill its limits (docs/limits.md, Memory). */
const MAX_MEMORY = 2 * 1024 ** 3;
/**
 * Milliseconds until the service must have closed every slow connection. It closes a request after 120 s and an idle
 * connection after 65 s (docs/limits.md).
 */
const CLOSE_TIMEOUT = 150_000;
/** Milliseconds after which an idle connection must have been closed. */
const IDLE_TIMEOUT = 70_000;
/** Milliseconds after which a client leaves in the short form. */
const SHORT_STAY = 2_500;
/** Number of parts in which a slow client sends a body, and milliseconds between two parts. */
const PARTS = 20;
const PAUSE = 100;

/** A slow client. `act` continues until the signal is aborted and returns the outcome. */
interface SlowClient {
	readonly name: string;
	/** Number of these clients in proportion to the others. */
	readonly share: number;
	/** Correct outcomes when the client stays as long as the service permits. */
	readonly correct: readonly string[];
	readonly act: (service: Endpoints, over: AbortSignal) => Promise<string>;
}

/** Clients that send or read very slowly. */
export const slowClients: Run = {
	name: "slow-clients",
	about: "clients that write a few bytes at a time, or take no answer, until they are closed",
	counted: "clients at a time",
	long: 1_000,
	short: 100,
	async run(count, random, report) {
		await using subject = await Subject.start(report);
		const large = String(record().id);
		const filler = "x".repeat(3_000_000);
		const stored = await postWebhook(subject.service, KEY, JSON.stringify(record({ id: large, title: filler })));
		report.expect(stored.status === 200, `the large record is answered with ${stored.status}`);
		const clients = slowKinds(large).flatMap((client) => Array.from({ length: client.share }, () => client));
		// In the short form clients leave before the service would close their connections.
		const stays = count >= slowClients.long;
		const load = async (): Promise<void> => {
			const all = Array.from({ length: count }, (_, index) => clients[index % clients.length] ?? clients[0]);
			await Promise.all(all.map((client) => client && slowly(subject.service, client, random, stays, report)));
		};
		await subject.amongOrdinary(() => subject.untilSteady(load, quiet(count, slowClients), MAX_MEMORY));
		await subject.expectSound();
	},
};

async function slowly(service: Endpoints, client: SlowClient, random: Random, stays: boolean, report: Report) {
	await delay(random.integer(0, 1_000));
	const over = stays ? new AbortController().signal : AbortSignal.timeout(SHORT_STAY);
	const answer = await unlessSilent(client.act(service, over), CLOSE_TIMEOUT);
	report.answer(client.name, answer, { refusable: client.correct.includes(answer) });
	report.expect(client.correct.includes(answer) || (answer === "left" && !stays), `${client.name}: ${answer}`);
}

/** Returns a request for a record. */
function readRequest(id: string, fields = ""): string {
	return `GET /api/v1/conversations/${id} HTTP/1.1\r\nHost: x\r\n${fields}X-Access-Token: ${KEY}\r\n\r\n`;
}

/**
 * Returns all kinds. The ones that send a body stay below the limit of ingest (512 concurrent requests), so that the
 * service also admits ordinary clients beside a thousand slow ones.
 */
function slowKinds(large: string): readonly SlowClient[] {
	const post = async (service: Endpoints, fields: Readonly<Record<string, string>>): Promise<RawHttp> => {
		const client = await new RawHttp(service).connected();
		await client.head({ "X-Access-Token": KEY, ...fields }, WEBHOOK);
		return client;
	};
	return [
		{
			name: "a body in small parts",
			share: 1,
			correct: ["200"],
			act: async (service) => {
				const body = JSON.stringify(record());
				using client = await post(service, { "Content-Length": String(body.length) });
				const size = Math.ceil(body.length / PARTS);
				for (let at = 0; at < body.length; at += size) {
					await client.write(body.slice(at, at + size));
					await delay(PAUSE);
				}
				return String((await client.response()).status);
			},
		},
		{
			name: "an endless body of small chunks",
			share: 1,
			correct: ["closed"],
			act: async (service, over) => {
				using client = await post(service, { "Transfer-Encoding": "chunked" });
				while (client.open && !over.aborted) {
					await client.chunk(" ");
					await delay(PAUSE);
				}
				return over.aborted ? "left" : "closed";
			},
		},
		{
			name: "a header that never ends",
			share: 4,
			correct: ["closed"],
			act: async (service, over) => {
				using client = await new RawHttp(service).connected();
				await client.write(`POST ${WEBHOOK} HTTP/1.1\r\nHost: x\r\n`);
				while (client.open && !over.aborted) await delay(50);
				return client.open ? "left" : "closed";
			},
		},
		{
			name: "answers that are not read",
			share: 2,
			correct: ["closed"],
			act: async (service, over) => {
				const socket = openSocket(httpAddress(service)).pause();
				let closed = false;
				socket.on("close", () => {
					closed = true;
				});
				for (let count = 0; count < 4; count++) socket.write(readRequest(large));
				// A paused socket notices that it was closed only when something is written to it. Before the service may have
				// closed it, a write would count as activity.
				const began = performance.now();
				const looks = setInterval(() => performance.now() - began > IDLE_TIMEOUT && socket.write("GET"), 5_000);
				while (!closed && !over.aborted) await delay(50);
				clearInterval(looks);
				socket.destroy();
				return closed ? "closed" : "left";
			},
		},
		{
			name: "an answer in small parts",
			share: 1,
			// The service may have no memory left for other large responses, because of the unread ones.
			correct: ["200", "503"],
			act: async (service) => {
				const socket = openSocket(httpAddress(service));
				let received = 0;
				let status = "closed";
				socket.write(readRequest(large, "Connection: close\r\n"));
				for await (const chunk of socket) {
					const bytes = Buffer.from(chunk);
					if (received === 0) status = bytes.toString("latin1", 9, 12);
					received += bytes.length;
					await delay(PAUSE / 2);
				}
				return status !== "200" || received > 2_000_000 ? status : `${received} bytes`;
			},
		},
	];
}
