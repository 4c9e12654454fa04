import { create } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type AccessKey, AccessKeyService } from "../../gen/conversations/v1/access_key_service_pb.js";
import {
	type AssignOwnerRequest,
	ConversationIdsSchema,
	ConversationOwnerService,
	ConversationsWithoutSenderSchema,
} from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import type { Config } from "../config/config.ts";
import { callAsCommand, filterOption } from "./admin.ts";
import { tableOf, timeText } from "./output.ts";

/** The commands `keys` and `owners assign`, clients of `AccessKeyService` and `ConversationOwnerService`. */

/** What `keys add` asks for. */
interface AddedKey {
	readonly name: string;
	/** Names of scopes; none for the default. */
	readonly scopes: readonly string[];
	/** Empty for none. */
	readonly owner: string;
	/** Undefined for a key that does not expire. */
	readonly expires: Date | undefined;
}

/** Creates a key. Returns the key, and a sentence about it. */
export async function addKey(
	config: Config,
	{ name, scopes, owner, expires }: AddedKey,
): Promise<{ readonly key: string; readonly text: string }> {
	const request = { name, scopes: [...scopes], owner, ...(expires && { expiresAt: timestampFromDate(expires) }) };
	const { key, accessKey } = await callAsCommand(config, AccessKeyService, (client) => client.createAccessKey(request));
	const [granted, of] = [accessKey?.scopes.join("+"), owner === "" ? "" : ` of the owner ${owner}`];
	return { key, text: `The key ${name}${of} was created with ${granted}. It is shown only once.` };
}

/** Returns the lines of a table of all keys. */
export async function listKeys(config: Config): Promise<readonly string[]> {
	const { accessKeys } = await callAsCommand(config, AccessKeyService, (client) => client.listAccessKeys({}));
	return tableOf([["NAME", "SCOPES", "OWNER", "STATE", "EXPIRES", "LAST USED"], ...accessKeys.map(rowOf)]);
}

/** Revokes a key. Returns a sentence about it. */
export async function revokeKey(config: Config, name: string): Promise<string> {
	const { accessKey } = await callAsCommand(config, AccessKeyService, (client) => client.revokeAccessKey({ name }));
	return `The key ${name} is revoked since ${timeText(accessKey?.revokedAt)}.`;
}

function rowOf({ name, scopes, owner, expiresAt, lastUsedAt, ...key }: AccessKey): string[] {
	return [
		name,
		scopes.join("+"),
		owner || "-",
		stateOf({ expiresAt, ...key }),
		timeText(expiresAt),
		timeText(lastUsedAt),
	];
}

function stateOf({ configured, revokedAt, expiresAt }: Pick<AccessKey, "configured" | "revokedAt" | "expiresAt">) {
	if (configured) return "configured";
	if (revokedAt !== undefined) return "revoked";
	return expiresAt !== undefined && timestampDate(expiresAt) <= new Date() ? "expired" : "valid";
}

/** Which conversations get an owner; exactly one of the members is set. */
interface AssignedConversations {
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
