import type { UpdateChange } from "../../gen/conversations/v1/update_pb.js";
import type { Store } from "../store/store.ts";

/** Returns a store that reports each update that it has stored. */
export function countedStore(store: Store, onUpdate: (change: UpdateChange) => void): Store {
	return {
		...store,
		async append(update, signal) {
			const appended = await store.append(update, signal);
			if (!appended.duplicate) onUpdate(appended.change);
			return appended;
		},
		async appendEvents(batch, signal) {
			const appended = await store.appendEvents(batch, signal);
			if (appended?.updateChange !== undefined) onUpdate(appended.updateChange);
			return appended;
		},
	};
}
