import { serve } from "../../threads/serve.ts";
import { reads, viewReads } from "../operations.ts";
import { findPrunable, firstReceivedSince } from "../remove.ts";
import { callsOf, type Session } from "../session.ts";
import type { DocumentQuery } from "../text-index.ts";
import { ofViews, type ViewQuery } from "../views/follow.ts";
import { type DatabaseOptions, openForReading, transaction, transactionAsync } from "./database.ts";
import { sqliteSession } from "./session.ts";
import { Statements } from "./statements.ts";
import { findChangedTitles, findDocuments, readProgress } from "./text-index.ts";

/** Entry point of the reader thread. Each call reads one snapshot of the database. */

/** The calls that the reader thread answers. */
export type ReaderCalls = ReturnType<typeof reader>["methods"];

function reader(options: DatabaseOptions) {
	const database = openForReading(options);
	const statements = new Statements(database);
	const session = sqliteSession(statements);

	function read<Result>(work: () => Result): Result {
		return transaction(database, "BEGIN", work);
	}

	/** As {@link read}, for work with a session. */
	function readInSession<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
		return transactionAsync(database, "BEGIN", () => work(session));
	}

	const findDocumentsOf = ofViews(
		async (_: Session, query: DocumentQuery) => findDocuments(statements, query),
		"conversations",
	);

	return {
		methods: {
			...callsOf(reads, (_, work) => readInSession(work)),
			...callsOf({ ...viewReads, findPrunable, firstReceivedSince }, (_, work) => readInSession(work)),
			findChangedTitles: (after: bigint) => read(() => findChangedTitles(statements, after)),
			readIndexProgress: () => read(() => readProgress(statements)),
			findDocuments: (query: ViewQuery<DocumentQuery>) => readInSession(() => findDocumentsOf(session, query)),
		},
		close: () => database.close(),
	};
}

serve(reader);
