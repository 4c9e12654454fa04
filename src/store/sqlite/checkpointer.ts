import { failureOf } from "../../threads/failure.ts";
import type { Answer, Received } from "../../threads/messages.ts";
import { serve } from "../../threads/worker.ts";
import { type DatabaseOptions, openForCopying, writeAheadLog } from "./database.ts";
import type { CopyRequest } from "./messages.ts";

/** The thread that copies the write-ahead log into the database while the writing thread goes on appending to it. */

/** Length of the write-ahead log, in bytes, from which it is copied. */
const copiedFrom = 128 * 2 ** 20;
/** Bytes that the writing thread can copy without holding up its appends. */
const few = 2 ** 20;
/** Times that the log is copied in a row: what was appended during one is left to the next, which has less to do. */
const mostCopies = 4;

serve((options: DatabaseOptions) => {
	const database = openForCopying(options);
	const log = writeAheadLog(database);
	// A failure is met again only when the log has grown by as much again.
	let due = copiedFrom;

	function copy(): boolean {
		let pending = log.pendingBytes();
		if (pending < due) return false;
		due = pending + copiedFrom;
		for (let copies = 0; copies < mostCopies && pending > few; copies++) {
			log.copy();
			pending = log.pendingBytes();
		}
		due = copiedFrom;
		return true;
	}

	function answerOne({ kind }: CopyRequest): unknown {
		if (kind === "copy") return copy();
		database.close();
		return undefined;
	}

	return {
		answer(requests: readonly Received<CopyRequest>[], post) {
			post(
				requests.map(({ request }): Answer => {
					try {
						return { value: answerOne(request) };
					} catch (error) {
						return { failure: failureOf(error) };
					}
				}),
			);
		},
	};
});
