import { ConversationSpaceService } from "../../gen/conversations/v1/conversation_space_service_pb.js";
import type { Store } from "../store/store.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** The methods of `ConversationSpaceService`. They are for commands on the machine of the service only. */
export function spaceMethods(store: Pick<Store, "compactEvents" | "returnSpace" | "resetViews">): readonly RpcMethod[] {
	return [
		unary(ConversationSpaceService.method.compactEvents, async ({ after }) => {
			const { compressed, ...step } = await store.compactEvents(after);
			return { ...step, compressed: BigInt(compressed) };
		}),
		unary(ConversationSpaceService.method.returnSpace, async () => await store.returnSpace()),
		unary(ConversationSpaceService.method.resetViews, async () => {
			await store.resetViews();
			return {};
		}),
	];
}
