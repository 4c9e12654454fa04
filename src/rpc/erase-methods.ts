import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import type { Principal } from "../access/keys.ts";
import type { Reads } from "../conversations/conversation-reads.ts";
import { invalid } from "../conversations/read/filter.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** Number of conversations that a request by a filter erases by default, and at most. */
const DEFAULT_MAX = 50;
const LARGEST_MAX = 1000;

/** The methods of `ConversationEraseService`. */
export function eraseMethods(reads: {
	/** What a caller can erase. */
	readonly of: (caller: Principal) => Pick<Reads, "erasing">;
}): readonly RpcMethod[] {
	return [
		unary(
			ConversationEraseService.method.deleteConversation,
			async (request, caller) => ({ erased: BigInt(await reads.of(caller).erasing.erase(request, caller)) }),
			{ conversationId: ({ id }) => id },
		),
		unary(ConversationEraseService.method.deleteConversations, async ({ filter, dryRun, max }, caller) => {
			if (max < 0) throw invalid("max", "must not be negative");
			const limit = Math.min(max === 0 ? DEFAULT_MAX : max, LARGEST_MAX);
			const { ids, matching } = await reads.of(caller).erasing.eraseMatching({ filter, max: limit, dryRun }, caller);
			return { erased: BigInt(ids.length), matching: BigInt(matching), ids: dryRun ? [...ids] : [] };
		}),
	];
}
