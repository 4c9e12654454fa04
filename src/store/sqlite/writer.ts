import type { DatabaseSync } from "node:sqlite";
import { failureOf } from "../../threads/failure.ts";
import type { Answer, Received } from "../../threads/messages.ts";
import { serve } from "../../threads/worker.ts";
import { type EncodedUpdate, encodedUpdate } from "../encoded-update.ts";
import { appender, type Written } from "./append.ts";
import { type DatabaseOptions, openForWriting, transaction, writeAheadLog } from "./database.ts";
import { isGeneral } from "./failure.ts";
import { Listing } from "./listing.ts";
import type { AppendRequest, WriteRequest } from "./messages.ts";
import { migrate } from "./migrations.ts";
import { remover } from "./remove.ts";
import { bigint } from "./values.ts";

/** The thread that writes: each run of appends in a batch is one transaction. */

serve((options: DatabaseOptions) => {
	const database = openForWriting(options);
	migrate(database);
	const log = writeAheadLog(database);
	const listing = new Listing(database);
	const appendAll = groupAppender(database, listing);
	const remove = remover(database);
	const probe = database.prepare("UPDATE store_state SET probes = probes + 1");

	function answerOther(request: Exclude<WriteRequest, AppendRequest>): number | undefined {
		switch (request.kind) {
			case "remove":
				return transaction(database, "BEGIN IMMEDIATE", () => remove.history(request.sequences));
			case "removeExpired":
				return transaction(database, "BEGIN IMMEDIATE", () => remove.expired(request));
			case "catchUp":
				listing.catchUp();
				return undefined;
			case "check":
				// Only a commit that reaches the disk proves that the next append can be kept.
				transaction(database, "BEGIN IMMEDIATE", () => probe.run());
				return undefined;
			case "finishCopy":
				log.copy();
				return undefined;
			case "close":
				close();
				return undefined;
		}
	}

	function close(): void {
		// What fails here is left to the next start.
		attempt(() => listing.catchUp());
		database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
		database.close();
	}

	return {
		answer(requests: readonly Received<WriteRequest>[], post) {
			let group: Received<AppendRequest>[] = [];
			const flush = () => {
				if (group.length > 0) post(appendAll(group));
				group = [];
				// If this fails, the next list or append meets the same failure and tells of it.
				if (listing.isFarBehind) attempt(() => listing.catchUp());
			};
			for (const { request, parts } of requests) {
				if (request.kind === "append") {
					group.push({ request, parts });
					continue;
				}
				flush();
				post([attempt(() => answerOther(request))]);
			}
			flush();
		},
	};
});

/** Returns a function that appends a group of updates and answers for each of them once all are on disk. */
function groupAppender(
	database: DatabaseSync,
	listing: Listing,
): (group: readonly Received<AppendRequest>[]) => Answer[] {
	const append = appender(database);
	const last = database.prepare(`
		SELECT max(coalesce((SELECT max(sequence) FROM updates), 0), pruned_through) AS sequence FROM store_state
	`);

	function commit(updates: readonly EncodedUpdate[]): Written[] {
		const written = transaction(database, "BEGIN IMMEDIATE", () => {
			let sequence = bigint(last.get()?.sequence);
			const next = () => {
				sequence += 1n;
				return sequence;
			};
			return updates.map((update) => append(update, next));
		});
		for (const { appended, conversation } of written)
			if (!appended.repeated) listing.committed(conversation, appended.sequence);
		return written;
	}

	return (group) => {
		const updates = group.map(({ parts }) => encodedUpdate(parts));
		try {
			return commit(updates).map(({ appended }) => ({ value: appended }));
		} catch (error) {
			const failure = failureOf(error);
			if (updates.length === 1 || isGeneral(failure)) return updates.map(() => ({ failure }));
			// One update failed for a reason of its own: alone, the others are kept.
			return updates.map((update) => attempt(() => commit([update])[0]?.appended));
		}
	};
}

function attempt(work: () => unknown): Answer {
	try {
		return { value: work() };
	} catch (error) {
		return { failure: failureOf(error) };
	}
}
