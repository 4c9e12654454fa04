import type { DatabaseSync } from "node:sqlite";
import { ServiceError } from "../../errors.ts";
import { release } from "../../memory.ts";
import { failureOf } from "../../threads/failure.ts";
import type { Outcome } from "../../threads/protocol.ts";
import { serve } from "../../threads/serve.ts";
import type { AppendRequest } from "../repetition.ts";
import type { NewEvents } from "../store.ts";
import { Appender } from "./append.ts";
import { EventAppender } from "./append-events.ts";
import { bytesOfBatch } from "./batch.ts";
import type { WriterCalls } from "./calls.ts";
import { type DatabaseOptions, openForWriting, transaction } from "./database.ts";
import { numbering } from "./log.ts";
import { Remover } from "./remove.ts";
import { isDatabaseFailure } from "./result-codes.ts";
import { createSchema } from "./schema.ts";
import { Statements } from "./statements.ts";

/** The thread that writes: the appends that wait for it are one transaction. */

/** What a group has: appends of updates and of batches of events. */
type GroupRequest = AppendRequest | NewEvents;

/**
 * Most bytes of records and events in one transaction of several appends, so that a large one does not hold up small
 * ones.
 */
const MAX_GROUP_BYTES = 2 ** 20;

serve<DatabaseOptions, WriterCalls, "append" | "appendEvents">((options) => {
	const database = openForWriting(options);
	write(() => createSchema(database));
	const remover = new Remover(database);
	const appendAll = groupAppender(database);
	const check = database.prepare("UPDATE store_state SET checks = checks + 1");

	function write<Result>(work: () => Result): Result {
		return transaction(database, "BEGIN IMMEDIATE", work);
	}

	return {
		methods: {
			removeUpdates: (sequences) => write(() => remover.updates(sequences)),
			removeDeleted: (request) => write(() => remover.deleted(request)),
			removeEvents: (request) => write(() => remover.events(request)),
			// Only a commit that reaches the disk proves that the next append can be kept.
			check: () => void write(() => check.run()),
			close() {
				database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
				database.close();
			},
		},
		group: {
			names: ["append", "appendEvents"],
			maxBytes: MAX_GROUP_BYTES,
			bytesOf: (request) => byteStringsOf(request).reduce((size, { byteLength }) => size + byteLength, 0),
			answer(requests) {
				const outcomes = appendAll(requests);
				for (const bytes of requests.flatMap(byteStringsOf)) release(bytes);
				return outcomes;
			},
		},
	};
});

function byteStringsOf(request: GroupRequest): Uint8Array[] {
	return "update" in request ? [request.update.record.bytes, request.update.summary] : bytesOfBatch(request);
}

const LATE = new ServiceError("unavailable", "the sender no longer waits for the answer");

function isLate(request: GroupRequest, now: number): boolean {
	const { awaitedUntil = now } = "update" in request ? request.update : request;
	return awaitedUntil < now;
}

/** Returns a function that appends a group and answers for each request once all are on disk. */
function groupAppender(database: DatabaseSync): (requests: readonly GroupRequest[]) => Outcome[] {
	const statements = new Statements(database);
	const updates = new Appender(statements);
	const events = new EventAppender(statements);

	function commit(requests: readonly GroupRequest[]): Outcome[] {
		return transaction(database, "BEGIN IMMEDIATE", () => {
			const next = { updates: numbering(statements, "updates"), events: numbering(statements, "events") };
			// Here, because the lock of the database may have taken its time.
			const now = Date.now();
			return requests.map((request) => {
				if (isLate(request, now)) return { failure: failureOf(LATE) };
				return { value: "update" in request ? updates.append(request, next.updates) : events.append(request, next) };
			});
		});
	}

	return function appendAll(requests): Outcome[] {
		try {
			return commit(requests);
		} catch (error) {
			const failure = failureOf(error);
			if (requests.length === 1 || isDatabaseFailure(failure)) return requests.map(() => ({ failure }));
			// One request failed for a reason of its own: the others are stored, each alone.
			return requests.flatMap((request) => appendAll([request]));
		}
	};
}
