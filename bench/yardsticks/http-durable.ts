import { DatabaseSync } from "node:sqlite";
import { isMainThread, type MessagePort, parentPort, Worker, workerData } from "node:worker_threads";
import { serveJson } from "./json-server.ts";

/**
 * The least that a durable webhook for events can do: a server that reads a batch, parses it and answers when a thread
 * has its events on disk, each once by conversation and id. It checks nothing and knows no access key. The database is
 * the process's first argument.
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
		// What arrives in one turn of the event loop travels in one message.
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
