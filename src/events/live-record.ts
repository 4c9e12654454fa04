import { create } from "@bufbuild/protobuf";
import { type ConversationInfo, ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { ServiceError, type Violation } from "../errors.ts";
import { sameTree } from "../record/diff.ts";
import type { ExactJson, ExactJsonObject } from "../record/json/json-value.ts";
import type { Microseconds } from "../record/json/scalars.ts";
import type { RecordFormat } from "../record/record-format.ts";
import { firstStatements, type StateUpdate, statementsOf } from "./statements.ts";
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

/** A record in plain text. */
export interface LiveRecord {
	readonly told: ToldTimes;
	/** Changed in place by state updates. */
	readonly record: ConversationInfo;
	/** The JSON form of those members that were asked for. */
	readonly json: Map<string, ExactJson | undefined>;
}

/** What state updates do to a record. */
export interface LiveChange {
	/** The members that change. Empty: there is no new version. */
	readonly changed: readonly string[];
	/** A record with nothing but the new values of these members. */
	readonly values: ConversationInfo;
	/** To be kept even when no member changes, so that what arrives late cannot undo what was told. */
	readonly told: ToldTimes;
	/** To be logged. */
	readonly refused: readonly RefusedStatement[];
}

/**
 * Changes the present record to what state updates say. Of the statements about a member those that meet the rules and
 * are later than what holds are applied, the latest last; at equal times the one that comes later. A statement about a
 * member that the schema does not name is not applied.
 *
 * Nothing is applied to a record that is `deleting`: that status is final, and the record that brought it was the
 * sender's last word.
 *
 * @param updates were not applied to this record before; in the order of their arrival
 */
export function applyUpdates(
	format: RecordFormat,
	{ record, told, json }: LiveRecord,
	updates: readonly StateUpdate[],
): LiveChange {
	const statements = statementsOf(updates);
	const missing = new Set(["execution_status", ...statements.map(({ member }) => member)]).difference(json);
	if (missing.size > 0) {
		const members = format.membersToJson(record, missing);
		for (const name of missing) json.set(name, members[name]);
	}
	const changed: string[] = [];
	const values = create(ConversationInfoSchema);
	const times: Record<string, Microseconds> = {};
	const refused: RefusedStatement[] = [];
	if (json.get("execution_status") === "deleting") return { changed, values, told, refused };
	const later = statements.filter(({ member, time }) => format.plan.members.has(member) && isLater(told, member, time));
	for (const [member, candidates] of Map.groupBy(later, ({ member }) => member)) {
		const before = json.get(member);
		// One after the other, because the latest may leave unsaid what an earlier one says.
		let value = before;
		let part: ConversationInfo | undefined;
		for (const statement of earliestFirst(candidates)) {
			const next = valueToldOver(statement, format.plan, value);
			if (next === undefined) continue;
			if (next !== value) {
				try {
					part = format.membersFromJson({ [member]: next });
				} catch (error) {
					refused.push({ member, violations: violationsOf(error) });
					continue;
				}
				// With its defaults filled in.
				value = format.toJson(part)[member];
			}
			times[member] = statement.time;
		}
		if (part === undefined || sameTree(value, before)) continue;
		changed.push(member);
		for (const message of [record, values]) format.replaceMember(message, member, part);
		json.delete(member);
	}
	return { changed, values, told: { posted: told.posted, events: { ...told.events, ...times } }, refused };
}

/** The rules that a refused record breaks; any other error is thrown. */
export function violationsOf(error: unknown): readonly Violation[] {
	if (error instanceof ServiceError && error.kind === "invalid_record") return error.violations;
	throw error;
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

/**
 * The first record of a conversation of which none was posted yet: the latest full state that is a whole valid record
 * by itself. All state updates of the conversation are then applied to it with {@link applyUpdates}.
 *
 * @returns undefined when there is no such full state: then the conversation has no record yet
 */
export function firstRecord(
	conversationId: string,
	updates: readonly StateUpdate[],
	format: RecordFormat,
): LiveRecord | undefined {
	for (const update of earliestFirst(updates).toReversed()) {
		const json: ExactJsonObject = { id: conversationId };
		const told: Record<string, Microseconds> = {};
		for (const statement of firstStatements(update)) {
			const { member, time } = statement;
			const value = format.plan.members.has(member) ? valueToldOver(statement, format.plan, undefined) : undefined;
			if (value === undefined) continue;
			json[member] = value;
			told[member] = time;
		}
		if (Object.keys(told).length === 0) continue;
		try {
			return { record: format.fromJson(json), told: { posted: undefined, events: told }, json: new Map() };
		} catch (error) {
			// One that breaks rules is passed over; violationsOf throws any other error.
			violationsOf(error);
		}
	}
	return undefined;
}
