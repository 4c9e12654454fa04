import { serve } from "../../threads/serve.ts";
import { callsOf, type Session } from "../session.ts";
import { reads, viewReads } from "../store.ts";
import { type DatabaseOptions, openForReading, transaction } from "./database.ts";
import { sqliteSession } from "./session.ts";
import { Statements } from "./sql.ts";

/** Entry point of the reader thread. Each call reads one snapshot of the database. */

/** The calls that the reader thread answers. */
export type ReaderCalls = ReturnType<typeof reader>["methods"];

function reader(options: DatabaseOptions) {
	const database = openForReading(options);
	const statements = new Statements(database);
	const session = sqliteSession(statements);

	function readInSession<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
		return transaction(database, "BEGIN", () => work(session));
	}

	return {
		methods: {
			...callsOf(reads, (_, work) => readInSession(work)),
			...callsOf(viewReads, (_, work) => readInSession(work)),
		},
		close: () => database.close(),
	};
}

serve(reader);
