import { create } from "@bufbuild/protobuf";
import { type ConversationInfo, ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { ServiceError, type Violation } from "../errors.ts";
import { type ExactJson, type ExactJsonObject, sameTree } from "../record/json/json-value.ts";
import type { Microseconds } from "../record/json/scalars.ts";
import type { RecordFormat } from "../record/record-format.ts";
import { membersOfFullState, reportedMembers, type StateUpdate, valueAfter } from "./state-update.ts";

/**
 * When the present value of each member of a record was reported, by the sender's clock. It decides what a later
 * arrival may change: of all reports about a member the latest one holds, in whatever order they arrive.
 */
export interface ReportTimes {
	/**
	 * `updated_at` of the posted record that the present one is based on, or its arrival when it has none. Undefined when
	 * the present record is based on events alone.
	 */
	readonly posted: Microseconds | undefined;
	/** Times of the members that events reported later than `posted`. */
	readonly events: Readonly<Record<string, Microseconds>>;
}

/** A member whose reported value is not applied, because it breaks rules of the record. */
export interface RefusedMember {
	readonly member: string;
	readonly violations: readonly Violation[];
}

/** A record of which only those members are decoded that are needed. */
export interface OpenRecord {
	readonly reportTimes: ReportTimes;
	/** JSON form of the members that were needed so far, in plain text. {@link applyUpdates} adds and changes members. */
	readonly json: Map<string, ExactJson | undefined>;
	/** Returns the JSON form of members that were not needed before, in plain text. */
	readonly read: (names: ReadonlySet<string>) => ExactJsonObject;
}

export interface MemberChanges {
	/** The members that change. When there are none, there is no new version. */
	readonly changed: readonly string[];
	/** A record that holds only the new values of these members. */
	readonly values: ConversationInfo;
	/** To be stored even when no member changes, so that a late arrival cannot undo what was reported. */
	readonly reportTimes: ReportTimes;
	/** When the last run began that these updates report, also if they report its end; undefined when they report none. */
	readonly runStartedAt: Microseconds | undefined;
	readonly refused: readonly RefusedMember[];
}

/**
 * Applies state updates to the present record. A reported value is applied if it meets the rules and is later than the
 * present value of the member. Values are applied in order of time, and of arrival at equal times. A member that the
 * schema does not name is ignored.
 *
 * Nothing is applied to a record that is `deleting`: that status is final, and its record is the sender's last report.
 *
 * @param updates updates that were not applied to this record before, in order of arrival
 */
export function applyUpdates(
	format: RecordFormat,
	{ reportTimes, json, read }: OpenRecord,
	updates: readonly StateUpdate[],
): MemberChanges {
	const reported = reportedMembers(updates);
	const missing = new Set(["execution_status", ...reported.map(({ member }) => member)]).difference(json);
	if (missing.size > 0) {
		const members = read(missing);
		for (const name of missing) json.set(name, members[name]);
	}
	const changed: string[] = [];
	const values = create(ConversationInfoSchema);
	const times: Record<string, Microseconds> = {};
	const refused: RefusedMember[] = [];
	let runStartedAt: Microseconds | undefined;
	if (json.get("execution_status") === "deleting") return { changed, values, reportTimes, runStartedAt, refused };
	const later = reported.filter(
		({ member, time }) => format.plan.members.has(member) && isLater(reportTimes, member, time),
	);
	for (const [member, candidates] of Map.groupBy(later, ({ member }) => member)) {
		const before = json.get(member);
		// One after the other, because a later report may omit values that an earlier one reports.
		let value = before;
		let part: ConversationInfo | undefined;
		for (const candidate of earliestFirst(candidates)) {
			const next = valueAfter(candidate, format.plan, value);
			if (next === undefined) continue;
			if (next !== value) {
				try {
					part = format.membersFromJson({ [member]: next });
				} catch (error) {
					refused.push({ member, violations: violationsOf(error) });
					continue;
				}
				// Read back with the schema's defaults filled in.
				value = format.toJson(part)[member];
				if (member === "execution_status" && value === "running") runStartedAt = candidate.time;
			}
			times[member] = candidate.time;
		}
		if (part === undefined || sameTree(value, before)) continue;
		changed.push(member);
		format.replaceMember(values, member, part);
		json.set(member, value);
	}
	return {
		changed,
		values,
		reportTimes: { posted: reportTimes.posted, events: { ...reportTimes.events, ...times } },
		runStartedAt,
		refused,
	};
}

/** Returns the rules that a refused record breaks. Throws any other error again. */
export function violationsOf(error: unknown): readonly Violation[] {
	if (error instanceof ServiceError && error.kind === "invalid_record") return error.violations;
	throw error;
}

/**
 * Whether a value reported at `time` replaces the present value of a member. At equal times a posted record wins over an
 * event, because it was written after its `updated_at`; of two events the later arrival wins.
 */
function isLater({ posted, events }: ReportTimes, member: string, time: Microseconds): boolean {
	const last = Object.hasOwn(events, member) ? events[member] : undefined;
	if (last !== undefined) return time >= last;
	return posted === undefined || time > posted;
}

/** Sorts by time, earliest first. Items with equal times keep their order. */
function earliestFirst<Item extends { readonly time: Microseconds }>(items: readonly Item[]): Item[] {
	return items.toSorted((a, b) => (a.time === b.time ? 0 : a.time < b.time ? -1 : 1));
}

/**
 * Makes the first record of a conversation without a posted one from the latest full state that is a valid record by
 * itself. All state updates of the conversation are then to be applied to it with {@link applyUpdates}.
 *
 * @returns undefined when there is no such full state; the conversation then has no record yet
 */
export function firstRecord(
	conversationId: string,
	updates: readonly StateUpdate[],
	format: RecordFormat,
): (Pick<OpenRecord, "reportTimes"> & { readonly record: ConversationInfo }) | undefined {
	for (const update of earliestFirst(updates).toReversed()) {
		const json: ExactJsonObject = { id: conversationId };
		const times: Record<string, Microseconds> = {};
		for (const reported of membersOfFullState(update)) {
			const { member, time } = reported;
			const value = format.plan.members.has(member) ? valueAfter(reported, format.plan, undefined) : undefined;
			if (value === undefined) continue;
			json[member] = value;
			times[member] = time;
		}
		if (Object.keys(times).length === 0) continue;
		try {
			return { record: format.fromJson(json), reportTimes: { posted: undefined, events: times } };
		} catch (error) {
			// A full state that breaks rules is skipped. violationsOf throws any other error.
			violationsOf(error);
		}
	}
	return undefined;
}
