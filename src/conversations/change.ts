import { UpdateChange } from "../../gen/conversations/v1/update_pb.js";
import type { Change } from "../store/store.ts";

/** The protobuf form of what an update changed. */
export const CHANGES: Readonly<Record<Change, UpdateChange>> = {
	started: UpdateChange.STARTED,
	paused: UpdateChange.PAUSED,
	resumed: UpdateChange.RESUMED,
	deleted: UpdateChange.DELETED,
	updated: UpdateChange.UPDATED,
};
