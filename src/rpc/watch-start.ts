import { WatchPosition } from "../../gen/conversations/v1/conversation_service_pb.js";
import { invalid } from "../conversations/read/filter.ts";
import type { WatchStart } from "../conversations/watch/watch.ts";

/** The start that the requests of all watches have. */
export interface StartOption {
	readonly start:
		| { readonly case: "afterSequence"; readonly value: bigint }
		| { readonly case: "position"; readonly value: WatchPosition }
		| { readonly case: undefined; readonly value?: undefined };
}

/**
 * Where a watch starts: now when the request says nothing.
 *
 * @throws ServiceError `invalid_argument` for a negative sequence number or a position that is not known
 */
export function watchStartOf({ start }: StartOption): WatchStart {
	if (start.case === "afterSequence") {
		if (start.value < 0n) throw invalid("after_sequence", "must not be negative");
		return start.value;
	}
	switch (start.value) {
		case undefined:
		case WatchPosition.UNSPECIFIED:
		case WatchPosition.NOW:
			return "now";
		case WatchPosition.BEGINNING:
			return "beginning";
		default:
			throw invalid("position", "is not a known position");
	}
}
