import type { UpdateChange } from "../../gen/conversations/v1/update_pb.js";
import type { Poster } from "../store/owners.ts";
import type { Store } from "../store/store.ts";

/** What a store reports. */
export interface StoreCounts {
	/** An update was stored. */
	readonly onUpdate: (change: UpdateChange) => void;
	/** A post was accepted that repeats what was stored before. `at` is when it arrived, in microseconds of Unix time. */
	readonly onRepeat: (poster: Poster, at: bigint) => void;
}

/** Returns a store that reports each update that it has stored, and each post of which it has stored nothing. */
export function countedStore(store: Store, { onUpdate, onRepeat }: StoreCounts): Store {
	return {
		...store,
		async append(update, signal) {
			// The store takes over the update.
			const { poster, isFetched, receivedAt } = update;
			const appended = await store.append(update, signal);
			if (!appended.duplicate) onUpdate(appended.change);
			else if (poster !== undefined && !isFetched) onRepeat(poster, receivedAt);
			return appended;
		},
		async appendEvents(batch, signal) {
			const { poster, isFetched, receivedAt } = batch;
			const appended = await store.appendEvents(batch, signal);
			if (appended?.updateChange !== undefined) onUpdate(appended.updateChange);
			if (appended?.stored === 0 && poster !== undefined && !isFetched) onRepeat(poster, receivedAt);
			return appended;
		},
	};
}
