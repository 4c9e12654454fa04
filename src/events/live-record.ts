import type { Violation } from "../errors.ts";
import { sameTree } from "../record/diff.ts";
import type { ExactJson, ExactJsonObject } from "../record/json/json-value.ts";
import type { Microseconds } from "../record/json/scalars.ts";
import type { PlainPlan } from "../record/plan/plan.ts";
import { firstStatements, type Statement, type StateUpdate } from "./statements.ts";
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
	readonly violations: readonly Violation[];
}

/** What a batch of events does to a record. */
export interface LiveChange {
	/** The members that change, to what {@link ReadMember} gave for them last. Empty: there is no new version. */
	readonly changed: readonly string[];
	/** To be kept even when no member changes, so that what arrives late cannot undo what was told. */
	readonly told: ToldTimes;
	/** To be logged. */
	readonly refused: readonly RefusedStatement[];
}

/** Reads one member of a record's JSON form; undefined when it has no value. */
export type MemberOf = (member: string) => ExactJson | undefined;

/**
 * Reads a value by the schema of the record's member and gives it in the form in which {@link MemberOf} would give it
 * once it is stored, with its defaults filled in.
 */
export type ReadMember = (
	member: string,
	value: ExactJson,
) => { readonly value: ExactJson | undefined } | { readonly violations: readonly Violation[] };

/**
 * Applies what events say to the present record. Of the statements about a member those that meet the rules and are
 * later than what holds are applied, the latest last; at equal times the one that comes later. A statement about a member
 * that the schema does not name is not applied.
 *
 * Nothing is applied to a record that is `deleting`: that status is final, and the record that brought it was the
 * sender's last word.
 *
 * @param plan the record's
 * @param statements of events that were not applied to this record before, in the order of their arrival
 */
export function applyStatements(
	plan: PlainPlan,
	present: MemberOf,
	told: ToldTimes,
	statements: readonly Statement[],
	read: ReadMember,
): LiveChange {
	const changed: string[] = [];
	const times: Record<string, Microseconds> = {};
	const refused: RefusedStatement[] = [];
	if (present("execution_status") === "deleting") return { changed, told, refused };
	const later = statements.filter(({ member, time }) => plan.members.has(member) && isLater(told, member, time));
	for (const [member, candidates] of Map.groupBy(later, ({ member }) => member)) {
		const before = present(member);
		// One after the other, because the latest may leave unsaid what an earlier one says.
		let value = before;
		for (const statement of earliestFirst(candidates)) {
			const next = valueToldOver(statement, plan, value);
			if (next === undefined) continue;
			if (next !== value) {
				const result = read(member, next);
				if ("violations" in result) {
					refused.push({ member, violations: result.violations });
					continue;
				}
				value = result.value;
			}
			times[member] = statement.time;
		}
		if (value !== before && !sameTree(value, before)) changed.push(member);
	}
	return { changed, told: { posted: told.posted, events: { ...told.events, ...times } }, refused };
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

/** The earliest first; among equal times the one that came first. */
function earliestFirst<Told extends { readonly time: Microseconds }>(told: readonly Told[]): Told[] {
	return told.toSorted((a, b) => (a.time === b.time ? 0 : a.time < b.time ? -1 : 1));
}

/** A record that events alone tell. */
export interface FirstRecord<Read> {
	readonly record: Read;
	readonly told: ToldTimes;
}

/**
 * The first record of a conversation of which none was posted yet: the latest full state that is a whole valid record
 * by itself. All state updates of the conversation are then applied to it with {@link applyStatements}.
 *
 * @param read reads a record's JSON form; undefined when it is no valid record
 * @returns undefined when there is no such full state: then the conversation has no record yet
 */
export function firstRecord<Read>(
	conversationId: string,
	updates: readonly StateUpdate[],
	plan: PlainPlan,
	read: (json: ExactJsonObject) => Read | undefined,
): FirstRecord<Read> | undefined {
	for (const update of earliestFirst(updates).toReversed()) {
		const json: ExactJsonObject = { id: conversationId };
		const told: Record<string, Microseconds> = {};
		for (const statement of firstStatements(update)) {
			const { member, time } = statement;
			const value = plan.members.has(member) ? valueToldOver(statement, plan, undefined) : undefined;
			if (value === undefined) continue;
			json[member] = value;
			told[member] = time;
		}
		const record = Object.keys(told).length === 0 ? undefined : read(json);
		if (record !== undefined) return { record, told: { posted: undefined, events: told } };
	}
	return undefined;
}
