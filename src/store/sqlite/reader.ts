import { serve } from "../../threads/serve.ts";
import type { ReaderCalls } from "./calls.ts";
import { type DatabaseOptions, openForReading, transaction } from "./database.ts";
import { listConversations } from "./list-conversations.ts";
import { findPrunable, firstReceivedAfter } from "./prunable.ts";
import { RecordReader } from "./record-reader.ts";
import { Statements } from "./statements.ts";
import { getUpdate, listUpdates, readRange } from "./updates.ts";

/** The thread that reads. Each call sees one state of the database. */

serve<DatabaseOptions, ReaderCalls>((options) => {
	const database = openForReading(options);
	const statements = new Statements(database);
	const records = new RecordReader(statements);

	function read<Result>(work: () => Result): Result {
		return transaction(database, "BEGIN", work);
	}

	return {
		methods: {
			get: ({ conversationId, asOf }) => read(() => getUpdate(statements, records, conversationId, asOf)),
			listConversations: (query) => read(() => listConversations(statements, records, query)),
			listUpdates: (query) => read(() => listUpdates(statements, records, query)),
			range: (query) => read(() => readRange(statements, query)),
			firstReceivedAfter: (time) => read(() => firstReceivedAfter(statements, time)),
			findPrunable: (request) => read(() => findPrunable(statements, request)),
			close: () => database.close(),
		},
	};
});
