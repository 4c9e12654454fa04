import { create } from "@bufbuild/protobuf";
import {
	type AssignOwnerRequest,
	ConversationIdsSchema,
	ConversationOwnerService,
} from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import type { Config } from "../config/config.ts";
import { callAsCommand } from "./admin.ts";

/** The command `owners assign`. It is a client of `ConversationOwnerService`. */

/** Which conversations get an owner; exactly one of the members is set. */
export interface AssignedConversations {
	/** Name of the sender of their first post. */
	readonly sender?: string | undefined;
	readonly ids?: readonly string[] | undefined;
	/** All that have no owner. */
	readonly all?: boolean | undefined;
}

/** Gives conversations an owner. Returns a sentence about it. */
export async function assignOwner(config: Config, owner: string, of: AssignedConversations): Promise<string> {
	const conversations = conversationsOf(of);
	const { assigned } = await callAsCommand(config, ConversationOwnerService, (client) =>
		client.assignOwner({ owner, conversations }),
	);
	return `${assigned} ${assigned === 1n ? "conversation belongs" : "conversations belong"} to ${owner} now.`;
}

function conversationsOf({ sender, ids }: AssignedConversations): AssignOwnerRequest["conversations"] {
	if (sender !== undefined) return { case: "sender", value: sender };
	if (ids !== undefined) return { case: "ids", value: create(ConversationIdsSchema, { ids: [...ids] }) };
	return { case: "allWithoutOwner", value: true };
}
