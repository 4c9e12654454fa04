import { release } from "../../memory.ts";
import { failureOf } from "../../threads/failure.ts";
import type { Outcome } from "../../threads/protocol.ts";
import { serve } from "../../threads/serve.ts";
import { isLate, LATE } from "../late.ts";
import type { GroupRequest } from "../repetition.ts";
import { appendUpdate } from "./append.ts";
import { appendEvents } from "./append-events.ts";
import { bytesOfBatch } from "./batch.ts";
import type { WalLoss, WriterCalls } from "./calls.ts";
import { openForWriting, transaction, type WriterOptions } from "./database.ts";
import { numbering, skipSequences } from "./log.ts";
import { OpenFiles } from "./open-files.ts";
import { removeDeleted, removeEvents, removeUpdates } from "./remove.ts";
import { isDatabaseFailure } from "./result-codes.ts";
import { createSchema } from "./schema.ts";
import { Statements } from "./statements.ts";
import type { WalEnd } from "./wal-end.ts";

/** The thread that writes: the appends that wait for it are one transaction. */

/**
 * Most bytes of records and events in one transaction of several appends, so that a large one does not hold up small
 * ones.
 */
const MAX_GROUP_BYTES = 2 ** 20;

/** Least bytes of a row of `updates` or `events` in its page, and less: their columns alone take more. */
const LEAST_ROW_BYTES = 16;

/** How long a commit counts as the proof that the next one can succeed, so that an idle service seldom writes. */
const PROOF_MILLISECONDS = 4_500;

/** Runs `work` in one transaction, which is on disk when it returns. */
type Write = <Result>(work: () => Result) => Result;

serve<WriterOptions, WriterCalls, "append" | "appendEvents">((options) => {
	const { walEnd } = options;
	const database = openForWriting(options);
	const statements = new Statements(database);
	const walLoss = transaction(database, "BEGIN IMMEDIATE", () => {
		createSchema(database);
		return walEnd && skipLost(statements, walEnd);
	});
	// What SQLite has not used stays in the log otherwise, and would be met again after the next crash.
	if (walLoss !== undefined) database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
	const files = new OpenFiles(options.path);
	const check = database.prepare("UPDATE store_state SET checks = checks + 1");
	const keepClock = database.prepare("UPDATE store_state SET clock = ?");
	let isSaved = false;
	/** When a commit has succeeded last; undefined after a failure. */
	let proven: number | undefined;

	function write<Result>(work: () => Result): Result {
		verifyFiles();
		let result: Result;
		try {
			result = transaction(database, "BEGIN IMMEDIATE", work);
		} catch (error) {
			proven = undefined;
			throw error;
		}
		proven = performance.now();
		isSaved = false;
		// Again, because the next start finds only what is at its path.
		verifyFiles();
		return result;
	}

	function verifyFiles(): void {
		try {
			files.verify();
		} catch (error) {
			proven = undefined;
			if (!isSaved && files.isDatabaseInPlace) isSaved = trySaveLog();
			throw error;
		}
	}

	/** Copies the log, which the next start does not find, into the database file, which it finds. */
	function trySaveLog(): boolean {
		try {
			return database.prepare("PRAGMA wal_checkpoint(FULL)").get()?.busy === 0n;
		} catch {
			// Tried again with the next call; what is told is that the files are not in their place.
			return false;
		}
	}

	return {
		methods: {
			removeUpdates: (sequences) => write(() => removeUpdates(statements, sequences)),
			removeDeleted: (request) => write(() => removeDeleted(statements, request)),
			removeEvents: (request) => write(() => removeEvents(statements, request)),
			check() {
				verifyFiles();
				// Only a commit that reaches the disk proves that the next append can be kept.
				if (proven === undefined || performance.now() - proven > PROOF_MILLISECONDS) write(() => check.run());
			},
			keepClock: (time) => void write(() => keepClock.run(time)),
			walLoss: () => walLoss,
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
				const outcomes = appendAll(statements, write, requests);
				for (const bytes of requests.flatMap(byteStringsOf)) release(bytes);
				return outcomes;
			},
		},
	};
});

function byteStringsOf(request: GroupRequest): Uint8Array[] {
	return "update" in request ? [request.update.record.bytes, request.update.summary] : bytesOfBatch(request);
}

/** Leaves out the sequences that lost entries may have had. Each of them was in a page of the lost frames. */
function skipLost(statements: Statements, end: WalEnd): WalLoss {
	const skipped = BigInt(end.frames) * BigInt(Math.ceil(end.pageSize / LEAST_ROW_BYTES));
	for (const log of ["updates", "events"] as const) skipSequences(statements, log, skipped);
	return { ...end, skipped };
}

/** Appends a group. Answers for each request once all are on disk. */
function appendAll(statements: Statements, write: Write, requests: readonly GroupRequest[]): Outcome[] {
	try {
		return write(() => {
			const next = { updates: numbering(statements, "updates"), events: numbering(statements, "events") };
			// Here, because the lock of the database may have taken its time.
			const now = Date.now();
			return requests.map((request) => {
				if (isLate(request, now)) return { failure: failureOf(LATE) };
				if ("update" in request) return { value: appendUpdate(statements, request, next.updates) };
				return { value: appendEvents(statements, request, next) };
			});
		});
	} catch (error) {
		const failure = failureOf(error);
		if (requests.length === 1 || isDatabaseFailure(failure)) return requests.map(() => ({ failure }));
		// One request failed for a reason of its own: the others are stored, each alone.
		return requests.flatMap((request) => appendAll(statements, write, [request]));
	}
}
