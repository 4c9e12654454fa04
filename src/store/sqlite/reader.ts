import { failureOf } from "../../threads/failure.ts";
import type { Answer, Received } from "../../threads/messages.ts";
import { serve } from "../../threads/worker.ts";
import { listConversations } from "./conversations.ts";
import { type DatabaseOptions, openForReading, transaction } from "./database.ts";
import type { ReadRequest } from "./messages.ts";
import { cutoff, findPrunable } from "./prunable.ts";
import { Statements } from "./statements.ts";
import { Titles } from "./titles.ts";
import { get, listUpdates, rangeOf } from "./updates.ts";

/** The thread that reads. Each request sees one state of the database. */

/** Milliseconds for which answers of one batch are held back to travel together. */
const holdBack = 0.5;

serve((options: DatabaseOptions) => {
	const database = openForReading(options);
	const statements = new Statements(database);
	const titles = new Titles(statements);

	function answerOne(request: ReadRequest): Answer {
		switch (request.kind) {
			case "get":
				return get(statements, request);
			case "listConversations":
				return transaction(database, "BEGIN", () => listConversations(statements, titles, request.query));
			case "listUpdates":
				return listUpdates(statements, request.query);
			case "range":
				return { value: rangeOf(statements) };
			case "cutoff":
				return { value: transaction(database, "BEGIN", () => cutoff(statements, request.receivedBefore)) };
			case "findPrunable":
				return { value: transaction(database, "BEGIN", () => findPrunable(statements, request)) };
			case "check":
				return { value: rangeOf(statements) };
			case "close":
				database.close();
				return { value: undefined };
		}
	}

	return {
		answer(requests: readonly Received<ReadRequest>[], post) {
			let answers: Answer[] = [];
			let since = performance.now();
			for (const { request } of requests) {
				try {
					answers.push(answerOne(request));
				} catch (error) {
					answers.push({ failure: failureOf(error) });
				}
				const now = performance.now();
				if (now - since < holdBack) continue;
				post(answers);
				answers = [];
				since = now;
			}
			if (answers.length > 0) post(answers);
		},
	};
});
