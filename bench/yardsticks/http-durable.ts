import { DatabaseSync } from "node:sqlite";
import { isMainThread, type MessagePort, parentPort, Worker, workerData } from "node:worker_threads";
import { serveJson } from "./json-server.ts";

/**
 * Lower bound of the cost of a durable webhook for events. The server reads and parses a batch, and responds when a
 * thread has written its events to disk, without duplicates by conversation and id. It checks neither events nor access
 * keys. The first argument of the process is the path of the database.
 */

interface Batch {
	readonly number: number;
	readonly conversation: string;
	readonly events: readonly { readonly id: string; readonly text: string }[];
}

if (isMainThread) listen(process.argv[2] ?? "");
else if (parentPort !== null) write(parentPort, String(workerData));

function listen(path: string): void {
	const writer = new Worker(new URL(import.meta.url), { workerData: path });
	const answers = new Map<number, () => void>();
	let waiting: Batch[] = [];
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

	serveJson((json, { url = "" }, succeed) => {
		const values: unknown[] = Array.isArray(json) ? json : [];
		const events = values.map((event) => ({ id: idOf(event), text: JSON.stringify(event) }));
		last += 1;
		answers.set(last, succeed);
		waiting.push({ number: last, conversation: url.slice(url.lastIndexOf("/") + 1), events });
		// Batches that arrive in one event loop turn travel in one message.
		if (waiting.length === 1) setImmediate(send);
	});
}

function idOf(event: unknown): string {
	return typeof event === "object" && event !== null && "id" in event ? String(event.id) : "";
}

function write(port: MessagePort, path: string): void {
	const database = new DatabaseSync(path);
	database.exec(`
		PRAGMA page_size = 8192;
		PRAGMA journal_mode = WAL;
		PRAGMA synchronous = FULL;
		CREATE TABLE events (
			sequence INTEGER PRIMARY KEY,
			conversation TEXT NOT NULL,
			event_id TEXT NOT NULL,
			text TEXT NOT NULL
		) STRICT;
		CREATE UNIQUE INDEX events_by_id ON events (conversation, event_id);
	`);
	const insert = database.prepare("INSERT OR IGNORE INTO events (conversation, event_id, text) VALUES (?, ?, ?)");
	port.on("message", (batches: readonly Batch[]) => {
		database.exec("BEGIN IMMEDIATE");
		for (const { conversation, events } of batches)
			for (const { id, text } of events) insert.run(conversation, id, text);
		database.exec("COMMIT");
		port.postMessage(batches.map(({ number }) => number));
	});
}
