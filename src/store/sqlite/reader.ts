import { serve } from "../../threads/serve.ts";
import type { ReaderCalls } from "./calls.ts";
import { type DatabaseOptions, openForReading, transaction } from "./database.ts";
import { listEvents } from "./events.ts";
import { listConversations } from "./list-conversations.ts";
import { getLiveState, listUnapplied } from "./live-state.ts";
import { firstReceivedSince, readRange, readRetentionTime } from "./log.ts";
import { findPrunable } from "./prunable.ts";
import { Statements } from "./statements.ts";
import { getUpdate, listUpdates } from "./updates.ts";

/** Entry point of the reader thread. Each call reads one snapshot of the database. */

serve<DatabaseOptions, ReaderCalls>((options) => {
	const database = openForReading(options);
	const statements = new Statements(database);

	function read<Result>(work: () => Result): Result {
		return transaction(database, "BEGIN", work);
	}

	return {
		methods: {
			get: ({ conversationId, asOf }) => read(() => getUpdate(statements, conversationId, asOf)),
			listConversations: (query) => read(() => listConversations(statements, query)),
			listUpdates: (query) => read(() => listUpdates(statements, query)),
			listEvents: (query) => read(() => listEvents(statements, query)),
			getLiveState: (request) => read(() => getLiveState(statements, request)),
			listUnapplied: (limit) => read(() => listUnapplied(statements, limit)),
			getRetentionTime: () => read(() => readRetentionTime(statements)),
			range: ({ log, query }) => read(() => readRange(statements, log, query)),
			firstReceivedSince: ({ log, time }) => read(() => firstReceivedSince(statements, log, time)),
			findPrunable: (request) => read(() => findPrunable(statements, request)),
			close: () => database.close(),
		},
	};
});
