import { toBinary } from "@bufbuild/protobuf";
import {
	type WatchConversationUpdatesResponse,
	WatchConversationUpdatesResponseSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";

/** A message that many watchers are given. It is encoded once for all of them, when the first one needs it. */
export class SharedResponse {
	readonly message: WatchConversationUpdatesResponse;
	#bytes: Uint8Array | undefined;

	/** @param message nobody may change it afterwards */
	constructor(message: WatchConversationUpdatesResponse) {
		this.message = message;
	}

	/** The encoded message. */
	get bytes(): Uint8Array {
		this.#bytes ??= toBinary(WatchConversationUpdatesResponseSchema, this.message);
		return this.#bytes;
	}
}
