import { ServiceError } from "../../errors.ts";
import { text } from "../values.ts";
import type { Session } from "./transaction.ts";

/** Returns the description of the source of an unfinished copy; undefined when there is no such copy. */
export async function sourceOfUnfinished(session: Session): Promise<string | undefined> {
	const [[row] = []] = await session.query({ text: "SELECT source FROM conversation_updates.unfinished_copy" });
	return row && text(row.source);
}

/** @throws ServiceError `unavailable` when the database holds an unfinished copy */
export async function requireFinished(session: Session): Promise<void> {
	if ((await sourceOfUnfinished(session)) === undefined) return;
	const cause = new Error(
		"a copy into the database is not finished: run it again, or drop the schema conversation_updates",
	);
	throw new ServiceError("unavailable", "the store's database cannot be opened", { cause });
}
