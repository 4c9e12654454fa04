import { createServer } from "node:http";
import { DatabaseSync } from "node:sqlite";
import { isMainThread, type MessagePort, parentPort, Worker, workerData } from "node:worker_threads";
import { UpdateParser } from "../../src/intake/record-intake.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { RecordVault } from "../../src/record/secrets/record-vault.ts";
import { announce } from "../processes/parent.ts";

/**
 * The least that a durable ingest of records takes: `node:http` reads a body, the intake of the service parses, checks,
 * protects and encodes the record in the main thread, and a thread inserts it into one table. The response follows when
 * the insert is on disk. There are no access keys, limits, metrics, order, duplicates or usage. The first argument of
 * the process is the path of the database.
 */

interface Insert {
	readonly number: number;
	readonly conversationId: string;
	readonly summary: Uint8Array;
	readonly record: Uint8Array;
}

const SUCCESS = JSON.stringify({ success: true });
const HEADERS = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(SUCCESS) };

if (isMainThread) listen(process.argv[2] ?? "");
else if (parentPort !== null) write(parentPort, String(workerData));

function listen(path: string): void {
	const format = new RecordFormat();
	const parser = new UpdateParser(format, new RecordVault(format, []));
	const writer = new Worker(new URL(import.meta.url), { workerData: path });
	const answers = new Map<number, () => void>();
	let waiting: Insert[] = [];
	let last = 0;
	let isWriting = false;
	const send = (): void => {
		if (isWriting || waiting.length === 0) return;
		isWriting = true;
		writer.postMessage(waiting);
		waiting = [];
	};
	writer.on("message", (written: readonly number[]) => {
		isWriting = false;
		for (const number of written) {
			answers.get(number)?.();
			answers.delete(number);
		}
		send();
	});

	const server = createServer((request, response) => {
		const chunks: Buffer[] = [];
		request.on("data", (chunk: Buffer) => chunks.push(chunk));
		request.on("end", () => {
			const { conversationId, summary, record } = parser.fromJson(Buffer.concat(chunks));
			last += 1;
			answers.set(last, () => response.writeHead(200, HEADERS).end(SUCCESS));
			waiting.push({ number: last, conversationId, summary, record: record.bytes });
			// Records that arrive in one turn of the event loop share a message.
			if (waiting.length === 1) setImmediate(send);
		});
	});
	server.listen(0, "127.0.0.1", () => {
		const address = server.address();
		announce({ port: typeof address === "object" && address !== null ? address.port : 0 });
	});
	process.on("disconnect", () => process.exit(0));
}

function write(port: MessagePort, path: string): void {
	const database = new DatabaseSync(path);
	database.exec(`
		PRAGMA page_size = 8192;
		PRAGMA journal_mode = WAL;
		PRAGMA synchronous = FULL;
		CREATE TABLE log (
			sequence INTEGER PRIMARY KEY,
			conversation_id TEXT NOT NULL,
			received_at INTEGER NOT NULL,
			summary BLOB NOT NULL,
			record BLOB NOT NULL
		) STRICT;
	`);
	const insert = database.prepare(
		"INSERT INTO log (conversation_id, received_at, summary, record) VALUES (?, ?, ?, ?)",
	);
	port.on("message", (inserts: readonly Insert[]) => {
		database.exec("BEGIN IMMEDIATE");
		for (const { conversationId, summary, record } of inserts) insert.run(conversationId, Date.now(), summary, record);
		database.exec("COMMIT");
		port.postMessage(inserts.map(({ number }) => number));
	});
}
