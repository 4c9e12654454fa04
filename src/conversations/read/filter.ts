import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { AnyAgentSchema } from "../../../gen/conversations/v1/agent_pb.js";
import type { ConversationFilter } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { ServiceError } from "../../errors.ts";
import { parseUuid } from "../../record/json/scalars.ts";
import type { RecordColumns, ConversationFilter as StoreFilter } from "../../store/store.ts";
import { statusName } from "../status.ts";

const AGENT_KINDS = AnyAgentSchema.fields.flatMap((field) => field.message?.name ?? []);
/** Seconds of 0001-01-01 and of 10000-01-01, between which a google.protobuf.Timestamp lies. */
const FIRST_SECOND = -62_135_596_800n;
const END_SECOND = 253_402_300_800n;
/** Most tags of one filter: each of them is a condition of its own in the store's statement. */
const MAX_TAGS = 32;
/** Most UTF-16 code units of a text to look for in titles, as each title may have to be compared with it. */
const MAX_TITLE_TEXT = 1024;

/**
 * The store's form of a filter: UUIDs in lower case with dashes, times in microseconds, and what says nothing left out.
 *
 * @param prefix what stands before a field's name in the message of an error
 * @throws ServiceError `invalid_argument` that names the field
 */
export function toStoreFilter(filter: ConversationFilter | undefined, prefix = "filter."): StoreFilter {
	if (filter === undefined) return {};
	const { executionStatus, agentKind, model, parentConversationId, tags, tagKey, titleContains } = filter;
	const status = statusName(executionStatus);
	if (executionStatus !== 0 && status === "") throw invalid(`${prefix}execution_status`, "is not a known status");
	if (agentKind !== "" && !AGENT_KINDS.includes(agentKind))
		throw invalid(`${prefix}agent_kind`, `must be ${AGENT_KINDS.join(" or ")}`);
	if (Object.keys(tags).length > MAX_TAGS) throw invalid(`${prefix}tags`, `must be at most ${MAX_TAGS}`);
	if (titleContains.length > MAX_TITLE_TEXT)
		throw invalid(`${prefix}title_contains`, `must have at most ${MAX_TITLE_TEXT} characters`);
	return {
		status: status || undefined,
		agentKind: agentKind || undefined,
		model: model || undefined,
		parentId: parentConversationId === "" ? undefined : uuid(parentConversationId, `${prefix}parent_conversation_id`),
		tags: Object.keys(tags).length === 0 ? undefined : tags,
		tagKey: tagKey || undefined,
		createdFrom: bound(filter.createdFrom, `${prefix}created_from`),
		createdTo: bound(filter.createdTo, `${prefix}created_to`),
		updatedFrom: bound(filter.updatedFrom, `${prefix}updated_from`),
		updatedTo: bound(filter.updatedTo, `${prefix}updated_to`),
		titleContains: titleContains || undefined,
	};
}

/** Whether a record meets a filter, exactly as the store's lists decide it. */
export function matchesFilter(filter: StoreFilter, columns: RecordColumns): boolean {
	const { status, agentKind, model, parentId, tags, tagKey, titleContains } = filter;
	return (
		(status === undefined || columns.status === status) &&
		(agentKind === undefined || columns.agentKind === agentKind) &&
		(model === undefined || columns.model === model) &&
		(parentId === undefined || columns.parentId === parentId) &&
		Object.entries(tags ?? {}).every(
			([key, value]) => Object.hasOwn(columns.tags, key) && columns.tags[key] === value,
		) &&
		(tagKey === undefined || Object.hasOwn(columns.tags, tagKey)) &&
		isWithin(columns.createdAt, filter.createdFrom, filter.createdTo) &&
		isWithin(columns.updatedAt, filter.updatedFrom, filter.updatedTo) &&
		(titleContains === undefined ||
			(columns.title !== undefined && asciiLower(columns.title).includes(asciiLower(titleContains))))
	);
}

/**
 * A UUID from a request, in lower case with dashes.
 *
 * @param field name of the field, for the error
 * @throws ServiceError `invalid_argument` that names the field
 */
export function uuid(text: string, field: string): string {
	const id = parseUuid(text);
	if (id === undefined) throw invalid(field, "is not a UUID");
	return id;
}

/** The error about a field of a request. */
export function invalid(field: string, what: string): ServiceError {
	return new ServiceError("invalid_argument", `${field} ${what}`);
}

/**
 * A bound of a range in microseconds. Records are kept to the microsecond, so rounding a finer bound up leaves the same
 * records on either side of it.
 */
function bound(time: Timestamp | undefined, field: string): bigint | undefined {
	if (time === undefined) return undefined;
	const { seconds, nanos } = time;
	if (seconds < FIRST_SECOND || seconds >= END_SECOND || nanos < 0 || nanos > 999_999_999)
		throw invalid(field, "is not a valid timestamp");
	return seconds * 1_000_000n + BigInt(Math.ceil(nanos / 1000));
}

function isWithin(time: bigint | undefined, from: bigint | undefined, to: bigint | undefined): boolean {
	if (from === undefined && to === undefined) return true;
	return time !== undefined && (from === undefined || time >= from) && (to === undefined || time < to);
}

function asciiLower(text: string): string {
	return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}
