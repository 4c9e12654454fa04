import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { decodeDelta, encodeDelta, readMembers, readTexts, withoutMembers, withTexts } from "./record-delta.ts";

/** What an encoded record says of other conversations. */

const {
	parentConversationId: PARENT,
	forkedFromConversationId: SOURCE,
	forkedFromEventId: SOURCE_EVENT,
	subConversationIds: { number: CHILDREN },
} = ConversationInfoSchema.field;
const RELATIONS: ReadonlySet<number> = new Set([PARENT.number, SOURCE.number]);

/**
 * Returns the ids of the children that an encoded record names, in lower case; none for bytes that are not a record.
 *
 * @param isDelta whether it is an encoded delta
 */
export function childrenIn(record: Uint8Array, isDelta: boolean): readonly string[] {
	try {
		const values = isDelta ? decodeDelta(record).values : record;
		return [...new Set(readTexts(values, CHILDREN).map((id) => id.toLowerCase()))];
	} catch {
		return [];
	}
}

/**
 * Removes a conversation as the parent, as the source of a fork and as a child from an encoded record.
 *
 * @returns undefined when the record does not name it
 * @throws Error for bytes that are not a record
 */
export function forgetInRecord(record: Uint8Array, conversationId: string): Uint8Array | undefined {
	const isIt = (id: string) => id.toLowerCase() === conversationId;
	const named = new Set<number>();
	for (const [member, value] of readMembers(record, RELATIONS))
		if (isIt(Buffer.from(value).toString())) named.add(member);
	if (named.has(SOURCE.number)) named.add(SOURCE_EVENT.number);
	const children = readTexts(record, CHILDREN);
	const others = children.filter((id) => !isIt(id));
	if (named.size === 0 && others.length === children.length) return undefined;
	const without = withoutMembers(record, named);
	return others.length === children.length ? without : withTexts(without, CHILDREN, others);
}

/** Does the same as {@link forgetInRecord} with an encoded delta. The delta goes on to set the members, to none. */
export function forgetInDelta(delta: Uint8Array, conversationId: string): Uint8Array | undefined {
	const { members, values } = decodeDelta(delta);
	const forgotten = forgetInRecord(values, conversationId);
	return forgotten && encodeDelta(members, forgotten);
}
