import { create } from "@bufbuild/protobuf";
import {
	type AssignOwnerRequest,
	ConversationIdsSchema,
	ConversationOwnerService,
	ConversationsWithoutSenderSchema,
} from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import type { Config } from "../config/config.ts";
import { callAsCommand } from "./admin.ts";
import { filterOption } from "./filter-option.ts";

/** The command `owners assign`. It is a client of `ConversationOwnerService`. */

/** Which conversations get an owner; exactly one of the members is set. */
export interface AssignedConversations {
	/** Name of the sender of their first post. */
	readonly sender?: string | undefined;
	readonly ids?: readonly string[] | undefined;
	/** All that have no owner. */
	readonly all?: boolean | undefined;
	/** Those without an owner that nobody is known to have posted: those of this filter, or with an empty one all. */
	readonly withoutSender?: string | undefined;
}

/** Gives conversations an owner. Returns sentences about it. */
export async function assignOwner(config: Config, owner: string, of: AssignedConversations): Promise<string[]> {
	const conversations = conversationsOf(of);
	const { assigned, leftWithoutSender } = await callAsCommand(config, ConversationOwnerService, (client) =>
		client.assignOwner({ owner, conversations }),
	);
	const lines = [`${assigned} ${assigned === 1n ? "conversation belongs" : "conversations belong"} to ${owner} now.`];
	if (leftWithoutSender > 0n)
		lines.push(
			`${leftWithoutSender} without an owner ${leftWithoutSender === 1n ? "was" : "were"} left, because nobody is known to have posted ${leftWithoutSender === 1n ? "it" : "them"}; --no-sender assigns them.`,
		);
	return lines;
}

function conversationsOf(of: AssignedConversations): AssignOwnerRequest["conversations"] {
	const { sender, ids, withoutSender } = of;
	if (sender !== undefined) return { case: "sender", value: sender };
	if (ids !== undefined) return { case: "ids", value: create(ConversationIdsSchema, { ids: [...ids] }) };
	if (withoutSender === undefined) return { case: "allWithoutOwner", value: true };
	const filter = withoutSender === "" ? {} : { filter: filterOption(withoutSender) };
	const value = create(ConversationsWithoutSenderSchema, filter);
	return { case: "withoutSender", value };
}
