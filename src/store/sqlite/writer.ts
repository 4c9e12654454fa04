import type { DatabaseSync } from "node:sqlite";
import { failureOf } from "../../threads/failure.ts";
import { type Outcome, release } from "../../threads/protocol.ts";
import { serve } from "../../threads/serve.ts";
import { Appender } from "./append.ts";
import type { AppendRequest, WriterCalls } from "./calls.ts";
import { type DatabaseOptions, openForWriting, transaction } from "./database.ts";
import { Remover } from "./remove.ts";
import { isDatabaseFailure } from "./result-codes.ts";
import { createSchema } from "./schema.ts";
import { bigint } from "./values.ts";

/** The thread that writes: the appends that wait for it are one transaction. */

/** Most bytes of records in one transaction of several appends, so that a large one does not hold up small ones. */
const MAX_GROUP_BYTES = 2 ** 20;

serve<DatabaseOptions, WriterCalls, "append">((options) => {
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
			// Only a commit that reaches the disk proves that the next append can be kept.
			check: () => void write(() => check.run()),
			close() {
				database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
				database.close();
			},
		},
		group: {
			name: "append",
			maxBytes: MAX_GROUP_BYTES,
			bytesOf: ({ update }: AppendRequest) => update.record.bytes.byteLength,
			answer(requests) {
				const outcomes = appendAll(requests);
				for (const { update } of requests) {
					release(update.record.bytes);
					release(update.summary);
				}
				return outcomes;
			},
		},
	};
});

/** Returns a function that appends a group of updates and answers for each of them once all are on disk. */
function groupAppender(database: DatabaseSync): (requests: readonly AppendRequest[]) => Outcome[] {
	const appender = new Appender(database);
	const last = database.prepare(`
		SELECT max(coalesce((SELECT max(sequence) FROM updates), 0), pruned_through) AS sequence FROM store_state
	`);

	function commit(requests: readonly AppendRequest[]): Outcome[] {
		return transaction(database, "BEGIN IMMEDIATE", () => {
			let sequence = bigint(last.get()?.sequence);
			const next = () => {
				sequence += 1n;
				return sequence;
			};
			return requests.map((request) => ({ value: appender.append(request, next) }));
		});
	}

	return function appendAll(requests): Outcome[] {
		try {
			return commit(requests);
		} catch (error) {
			const failure = failureOf(error);
			if (requests.length === 1 || isDatabaseFailure(failure)) return requests.map(() => ({ failure }));
			// One update failed for a reason of its own: the others are stored, each alone.
			return requests.flatMap((request) => appendAll([request]));
		}
	};
}
