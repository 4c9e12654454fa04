import type { WorkerThread } from "../../threads/worker-thread.ts";
import type { PruningEngine } from "../pruner.ts";
import type { WaitForViews } from "../views/read-view.ts";
import type { ReaderCalls } from "./reader.ts";
import type { WriterCalls } from "./writer.ts";

/**
 * Returns what the pruner removes. The reader thread searches, and the writer thread removes between appends, so that a
 * search through many conversations delays no append. Conversations are ordered by row id.
 */
export function pruningOf(
	{ calls: writer }: WorkerThread<WriterCalls>,
	{ calls: reader }: WorkerThread<ReaderCalls>,
	readOfView: WaitForViews,
): PruningEngine<bigint> {
	return {
		maxRemoved: 100,
		firstReceivedSince: (log, time) => reader.firstReceivedSince({ log, time }),
		findDeleted: (bounds) => readOfView(reader.findDeleted, bounds),
		removeDeleted: (conversationId, bounds) => writer.removeDeleted({ conversationId, ...bounds }),
		async removeHistory(query) {
			const { sequences, next } = await reader.findPrunable(query);
			return { removed: sequences.length === 0 ? 0 : await writer.removeUpdates(sequences), next };
		},
		removeEvents: (bounds) => writer.removeEvents(bounds),
	};
}
