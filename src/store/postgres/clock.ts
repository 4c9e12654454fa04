import { bigint, nullable } from "../values.ts";
import type { Connections } from "./connections.ts";
import type { Session } from "./transaction.ts";

/** Reads what `Store.clock` gives. */
export async function readClock(session: Session): Promise<bigint | undefined> {
	const [[row] = []] = await session.query({ text: "SELECT clock FROM conversation_updates.retention" });
	return nullable(bigint, row?.clock ?? null);
}

/** Does what `Store.keepClock` does. Of several processes the last one to keep its time is the one that counts. */
export async function keepClock(connections: Connections, time: bigint): Promise<void> {
	await connections.transaction(async (transaction) => {
		await transaction.commit({ text: "UPDATE conversation_updates.retention SET clock = $1", values: [time] });
	});
}
