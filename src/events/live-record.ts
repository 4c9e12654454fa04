import type { Violation } from "../errors.ts";
import type { Microseconds } from "../record/json/scalars.ts";
import { isSameJson, type Json, type JsonMembers } from "./json.ts";
import { FULL_STATE, fullState, NEVER_TOLD, STATE_UPDATE, type Statement, type TimedEvent } from "./statements.ts";
import { valueToldOver } from "./told-value.ts";

/**
 * When the present value of each member of a record was told, by the sender's clock. It decides what a later arrival
 * may change: of all that was told about a member, the latest holds, in whatever order it arrives.
 */
export interface ToldTimes {
	/**
	 * `updated_at` of the posted record that is the base of the present one, or its arrival when it has none. Undefined
	 * when there is only what events told.
	 */
	readonly posted: Microseconds | undefined;
	/** Members that events told later than that. */
	readonly events: Readonly<Record<string, Microseconds>>;
}

/** A member of a record that was told, but breaks rules. */
export interface RefusedStatement {
	readonly member: string;
	readonly time: Microseconds;
	readonly violations: readonly Violation[];
}

/** What a batch of events does to a record. */
export interface LiveChange {
	/** The members that change, with their new values. Empty: there is no new version. */
	readonly members: Readonly<JsonMembers>;
	/** To be kept even when no member changes, so that what arrives late cannot undo what was told. */
	readonly told: ToldTimes;
	/** To be logged. */
	readonly refused: readonly RefusedStatement[];
}

/** Reads one member of a record's JSON form; undefined when it has no value. */
export type MemberOf = (member: string) => Json | undefined;

/**
 * Reads a value by the schema of the record's member and gives it in the form in which {@link MemberOf} would give it
 * once it is stored: defaults filled in and, where secrets are stored redacted, redacted.
 *
 * @returns undefined when the schema names no such member
 */
export type ReadMember = (
	member: string,
	value: Json,
) => { readonly value: Json } | { readonly violations: readonly Violation[] } | undefined;

/**
 * Applies what events say to the present record. Of the statements about a member the latest that meets the rules is
 * applied, if it is later than what holds; at equal times the one that comes later. A statement about a member that the
 * schema does not name is not applied.
 *
 * Nothing is applied to a record that is `deleting`: that status is final, and the record that brought it was the
 * sender's last word.
 *
 * @param statements of events that were not applied to this record before, in the order of their arrival
 */
export function applyStatements(
	present: MemberOf,
	told: ToldTimes,
	statements: readonly Statement[],
	read: ReadMember,
): LiveChange {
	const members: JsonMembers = {};
	const times: Record<string, Microseconds> = {};
	const refused: RefusedStatement[] = [];
	if (present("execution_status") === "deleting") return { members, told, refused };
	for (const [member, candidates] of latestFirst(statements)) {
		const before = present(member);
		for (const statement of candidates) {
			const { time } = statement;
			if (!isLater(told, member, time)) break;
			const value = valueToldOver(statement, before);
			if (value === undefined) continue;
			const result = read(member, value);
			if (result === undefined) break;
			if ("violations" in result) {
				refused.push({ member, time, violations: result.violations });
				continue;
			}
			times[member] = time;
			if (!isSameJson(result.value, before)) members[member] = result.value;
			break;
		}
	}
	return { members, told: { posted: told.posted, events: { ...told.events, ...times } }, refused };
}

/**
 * Whether something told about a member at `time` holds against what was told before. A posted record wins at equal
 * times, for it was written after its `updated_at`; of two events the one that arrives later wins.
 */
function isLater({ posted, events }: ToldTimes, member: string, time: Microseconds): boolean {
	const last = Object.hasOwn(events, member) ? events[member] : undefined;
	if (last !== undefined) return time >= last;
	return posted === undefined || time > posted;
}

/** Statements by member, the latest first; among equal times the one that came last. */
function latestFirst(statements: readonly Statement[]): Map<string, Statement[]> {
	const groups = Map.groupBy(statements, ({ member }) => member);
	for (const group of groups.values())
		group.reverse().sort((a, b) => (a.time === b.time ? 0 : a.time < b.time ? 1 : -1));
	return groups;
}

/**
 * The times of a posted record that becomes current: all of its members are told at its `updated_at`. The events of the
 * conversation that are later, of whatever kind, are then applied to it again with {@link applyStatements}, as if they
 * arrived now. The sender sets `updated_at` before it writes the record, so that the record may hold what such an event
 * tells already; then nothing changes.
 *
 * A record that is `deleting` is taken as it is: the sender writes it last, and with the `updated_at` of its last
 * record.
 *
 * @param updatedAt the record's `updated_at`, or its arrival when it has none or one that is too far ahead
 */
export function toldByPost(updatedAt: Microseconds): ToldTimes {
	return { posted: updatedAt, events: {} };
}

/** A record that events alone tell. */
export interface FirstRecord {
	readonly record: Readonly<JsonMembers>;
	readonly told: ToldTimes;
}

/**
 * The first record of a conversation of which none was posted yet: the latest full state that is a whole valid record
 * by itself. All events of the conversation are then applied to it with {@link applyStatements}.
 *
 * @param isMember whether the schema names a top-level member; others of the sender's state are not of the record
 * @param isRecord whether a JSON object is a valid record
 * @returns undefined when there is no such full state: then the conversation has no record yet
 */
export function firstRecord(
	conversationId: string,
	events: readonly TimedEvent[],
	isMember: (name: string) => boolean,
	isRecord: (json: JsonMembers) => boolean,
): FirstRecord | undefined {
	const states = events.filter(({ kind, members }) => kind === STATE_UPDATE && members.key === FULL_STATE);
	for (const { members, time } of states.toSorted((a, b) => (a.time < b.time ? 1 : -1))) {
		const record: JsonMembers = { id: conversationId };
		const told: Record<string, Microseconds> = {};
		for (const [name, value] of Object.entries(fullState(members.value ?? null))) {
			const statement = { member: name, value, time, leavesOutNulls: true };
			const isTold = isMember(name) && !NEVER_TOLD.has(name);
			const resolved = isTold ? valueToldOver(statement, undefined) : undefined;
			if (resolved === undefined) continue;
			record[name] = resolved;
			told[name] = time;
		}
		if (isRecord(record)) return { record, told: { posted: undefined, events: told } };
	}
	return undefined;
}
