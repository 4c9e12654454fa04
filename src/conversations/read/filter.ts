import { isFieldSet, type Message } from "@bufbuild/protobuf";
import type { GenMessage } from "@bufbuild/protobuf/codegenv2";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { AnyAgentSchema } from "../../../gen/conversations/v1/agent_pb.js";
import {
	ConversationExecutionStatus,
	ConversationExecutionStatusSchema,
} from "../../../gen/conversations/v1/conversation_pb.js";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { UpdateOrigin, UpdateOriginSchema } from "../../../gen/conversations/v1/update_pb.js";
import { invalid, ServiceError } from "../../errors.ts";
import { parseUuid } from "../../record/json/scalars.ts";
import { planEnum } from "../../record/plan.ts";
import type { Condition } from "../../store/condition.ts";

export const AGENT_KINDS = AnyAgentSchema.fields.flatMap((field) => field.message?.name ?? []);
const ORIGINS = new Set<number>(UpdateOriginSchema.values.map(({ number }) => number));
const STATUSES = new Set<number>(ConversationExecutionStatusSchema.values.map(({ number }) => number));
/** Seconds from the Unix epoch to 0001-01-01 and to 10000-01-01, between which a google.protobuf.Timestamp lies. */
const FIRST_SECOND = -62_135_596_800n;
const END_SECOND = 253_402_300_800n;
/** Maximum number of tags in one filter. Each tag is a condition of its own in the store's SQL statement. */
export const MAX_TAGS = 32;
/** Maximum number of ids in one filter: as many as a page has conversations. */
export const MAX_IDS = 1000;
/** Maximum characters (Unicode code points) of a text to find in titles. Each title may be compared with it. */
export const MAX_TITLE_TEXT = 1024;

type Field<Filter> = Exclude<keyof Filter, "$typeName" | "$unknown">;

/**
 * For each field of a filter, a function that returns the conditions for its value. It is not called for the default value.
 * `name` is the name of the field in errors. The type check fails when a field is missing.
 */
export type FilterFields<Filter, Condition> = {
	readonly [Name in Field<Filter>]: (value: NonNullable<Filter[Name]>, name: string) => readonly Condition[];
};

const FIELDS: FilterFields<ConversationFilter, Condition> = {
	executionStatus(value, name) {
		if (!STATUSES.has(value)) throw invalid(name, "is not a known status");
		return [{ kind: "equal", field: "executionStatus", value }];
	},
	agentKind(value, name) {
		if (!AGENT_KINDS.includes(value)) throw invalid(name, `must be ${AGENT_KINDS.join(" or ")}`);
		return [{ kind: "equal", field: "agentKind", value }];
	},
	model: (value, name) => [{ kind: "equal", field: "model", value: wellFormed(value, name) }],
	parentConversationId: (value, name) => [{ kind: "equal", field: "parentConversationId", value: uuid(value, name) }],
	forkedFromConversationId: (value, name) => [
		{ kind: "equal", field: "forkedFromConversationId", value: uuid(value, name) },
	],
	tags(value, name) {
		const entries = Object.entries(value);
		if (entries.length > MAX_TAGS) throw invalid(name, `must have at most ${MAX_TAGS} entries`);
		// Sorted, because a page token is valid for equal conditions in equal order only.
		entries.sort(([a], [b]) => (a < b ? -1 : 1));
		return entries.map(([key, tag]) => ({
			kind: "tag",
			key: wellFormed(key, name),
			value: wellFormed(tag, name),
		}));
	},
	tagKey: (value, name) => [{ kind: "tag", key: wellFormed(value, name), value: undefined }],
	createdFrom: (value, name) => [{ kind: "time", field: "createdAt", from: timeBound(value, name) }],
	createdTo: (value, name) => [{ kind: "time", field: "createdAt", to: timeBound(value, name) }],
	updatedFrom: (value, name) => [{ kind: "time", field: "updatedAt", from: timeBound(value, name) }],
	updatedTo: (value, name) => [{ kind: "time", field: "updatedAt", to: timeBound(value, name) }],
	titleContains(value, name) {
		if ([...value].length > MAX_TITLE_TEXT) throw invalid(name, `must have at most ${MAX_TITLE_TEXT} characters`);
		return [{ kind: "title", contains: wellFormed(value, name) }];
	},
	sender: (value, name) => [{ kind: "equal", field: "sender", value: wellFormed(value, name) }],
	owner: (value, name) => [{ kind: "equal", field: "owner", value: wellFormed(value, name) }],
	executionStatuses(values, name) {
		const [status, ...others] = statuses(values, name);
		if (status === undefined) return [];
		if (others.length === 0) return [{ kind: "equal", field: "executionStatus", value: status }];
		return [{ kind: "one_of", field: "executionStatus", values: [status, ...others] }];
	},
	executionStatusesNot(values, name) {
		const excluded = new Set<number>(statuses(values, name));
		// The others, because an index finds them.
		return [{ kind: "one_of", field: "executionStatus", values: [...STATUSES.difference(excluded)] }];
	},
	activityFrom: (value, name) => [{ kind: "time", field: "activityAt", from: timeBound(value, name) }],
	activityTo: (value, name) => [{ kind: "time", field: "activityAt", to: timeBound(value, name) }],
	costFrom: (value, name) => [{ kind: "cost", from: number(value, name) }],
	costTo: (value, name) => [{ kind: "cost", to: number(value, name) }],
	hasError: (value) => [{ kind: "error", value }],
	hasGaps: (value) => [{ kind: "gaps", value }],
	ids(values, name) {
		if (values.length > MAX_IDS) throw invalid(name, `must have at most ${MAX_IDS} entries`);
		// Sorted and each once, because a page token is valid for equal conditions only.
		return [{ kind: "ids", ids: [...new Set(values.map((value) => uuid(value, name)))].sort() }];
	},
	scores(values, name) {
		if (values.length > MAX_SCORES) throw invalid(name, `must have at most ${MAX_SCORES} entries`);
		return [...new Set(values)].sort().map((value) => scoreCondition(wellFormed(value, name), name));
	},
};

/** Maximum number of conditions on scores in one filter. */
export const MAX_SCORES = 8;
const NAME = "[a-z][a-z0-9_.-]{0,63}";
const NUMBER = "[-+]?(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][-+]?[0-9]+)?";
const IS_NUMBER = new RegExp(`^${NUMBER}$`);
/** The name of a score. */
export const SCORE_NAME = new RegExp(`^${NAME}$`);
/** A condition on a score. */
export const SCORE_CONDITION = new RegExp(
	`^(?:none:(${NAME})|(?!none:)(${NAME})(?::([\\s\\S]+)|(>=|>|<=|<)(${NUMBER})))$`,
);

/** Returns the name of a score. Throws `invalid_argument` that names the field. */
export function scoreName(text: string, field: string): string {
	if (SCORE_NAME.test(text)) return text;
	throw invalid(field, "must be a small letter and at most 63 small letters, digits, dots, dashes and underscores");
}

function scoreCondition(text: string, field: string): Condition {
	const [, none, name = "", value, is, number] = SCORE_CONDITION.exec(text) ?? [];
	if (none !== undefined) return { kind: "score", name: none, is: "none" };
	// Whether the scores of the name are numbers or categories is not known. A number can be written in several ways.
	if (value !== undefined)
		return { kind: "score", name, is: "=", value: IS_NUMBER.test(value) ? [value, String(Number(value))] : [value] };
	if (is === ">=" || is === ">" || is === "<=" || is === "<") return { kind: "score", name, is, value: Number(number) };
	throw invalid(field, "must be NAME:VALUE, NAME>=NUMBER, NAME>NUMBER, NAME<=NUMBER, NAME<NUMBER or none:NAME");
}

/**
 * Returns the conditions of a filter for what follows updates.
 *
 * @throws ServiceError as {@link conditionsOf}, and `invalid_argument` for conditions on scores, of which no update tells
 */
export function conditionsOnUpdates(filter: ConversationFilter | undefined): Condition[] {
	const conditions = conditionsOf(filter);
	if (conditions.some(({ kind }) => kind === "score"))
		throw invalid("filter.scores", "must be empty, because no update tells of scores");
	return conditions;
}

/** Returns statuses in the order of their numbers, so that equal filters have equal page tokens, each once. */
function statuses(values: readonly number[], name: string): number[] {
	for (const value of values)
		if (!STATUSES.has(value) || value === ConversationExecutionStatus.UNSPECIFIED)
			throw invalid(name, "has an unknown status");
	return [...new Set(values)].sort((a, b) => a - b);
}

function number(value: number, name: string): number {
	if (Number.isNaN(value)) throw invalid(name, "is not a number");
	return value;
}

/**
 * Returns the conditions of a filter.
 *
 * @param prefix text before the name of a field in error messages
 * @throws ServiceError `invalid_argument` that names the field, or when the filter has an unknown field
 */
export function conditionsOf(filter: ConversationFilter | undefined, prefix = "filter."): Condition[] {
	return conditionsOfFields(ConversationFilterSchema, FIELDS, filter, prefix);
}

export function conditionsOfFields<Filter extends Message, Condition>(
	{ fields }: GenMessage<Filter>,
	meanings: FilterFields<Filter, Condition>,
	filter: Filter | undefined,
	prefix: string,
): Condition[] {
	if (filter === undefined) return [];
	if (filter.$unknown !== undefined && filter.$unknown.length > 0)
		throw new ServiceError("invalid_argument", "the filter has a field that this release does not know");
	const isField = (name: string): name is Field<Filter> & string => Object.hasOwn(meanings, name);
	return fields.flatMap((field) => {
		const { localName, name } = field;
		if (!isField(localName)) throw new TypeError(`the filter's field ${name} is not implemented`);
		const value = filter[localName];
		return value == null || !isFieldSet(filter, field) ? [] : meanings[localName](value, `${prefix}${name}`);
	});
}

/** Returns a UUID in lower case with dashes. Throws `invalid_argument` that names the field. */
export function uuid(text: string, field: string): string {
	const id = parseUuid(text);
	if (id === undefined) throw invalid(field, "is not a UUID");
	return id;
}

/** Returns the origin that updates must have; undefined for any origin. Throws `invalid_argument` for an unknown one. */
export function originOf(origin: UpdateOrigin | undefined): UpdateOrigin | undefined {
	if (origin === undefined || origin === UpdateOrigin.UNSPECIFIED) return undefined;
	if (!ORIGINS.has(origin)) throw invalid("origin", "is not a known origin");
	return origin;
}

/** Asserts that a text has no lone surrogates. UTF-8 cannot encode them, so SQLite would compare it differently. */
export function wellFormed(text: string, field: string): string {
	if (!text.isWellFormed()) throw invalid(field, "is not valid Unicode");
	return text;
}

/**
 * Returns a bound of a range of time in microseconds. The times of records and events are whole microseconds, so
 * rounding a finer bound up does not change which of them are in the range.
 */
export function timeBound({ seconds, nanos }: Timestamp, field: string): bigint {
	if (seconds < FIRST_SECOND || seconds >= END_SECOND || nanos < 0 || nanos > 999_999_999)
		throw invalid(field, "is not a valid timestamp");
	return seconds * 1_000_000n + BigInt(Math.ceil(nanos / 1000));
}

const STATUS_NAMES = planEnum(ConversationExecutionStatusSchema).byNumber;

/** Returns the JSON name of an execution status; empty when there is none. */
export function nameOfStatus(number: number): string {
	return STATUS_NAMES.get(number) ?? "";
}
