import { ServiceError } from "../../errors.ts";
import { text } from "../values.ts";
import type { Session } from "./transaction.ts";

/** Returns the manifest of the export whose import is not finished; undefined when there is no such import. */
export async function manifestOfUnfinished(session: Session): Promise<string | undefined> {
	const [[row] = []] = await session.query({ text: "SELECT manifest FROM conversation_updates.unfinished_import" });
	return row && text(row.manifest);
}

/** @throws ServiceError `unavailable` when the database holds an unfinished import */
export async function requireFinished(session: Session): Promise<void> {
	if ((await manifestOfUnfinished(session)) === undefined) return;
	const cause = new Error(
		"an import into the database is not finished: run it again, or drop the schema conversation_updates",
	);
	throw new ServiceError("unavailable", "the store's database cannot be opened", { cause });
}
