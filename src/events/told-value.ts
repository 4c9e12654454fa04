import { sameTree } from "../record/diff.ts";
import { type ExactJson, type ExactJsonObject, isJsonObject, memberOf, setMember } from "../record/json/json-value.ts";
import { armOf, objectAt, type Place, rootPlace, step } from "../record/plan/place.ts";
import type { MessagePlan } from "../record/plan/plan.ts";
import { REDACTED } from "../record/secrets/secret-walk.ts";
import type { Statement } from "./statements.ts";

/** Lists of the record's metrics that a state update of `stats` leaves out. A full state has them. */
const PER_CALL_LISTS = ["costs", "response_latencies", "token_usages"] as const;

/**
 * The value that a member of the record gets when an event tells it, by the names that the schema prefers.
 *
 * An event says less than a posted record: it shows placeholders for secrets, which a posted record leaves out or has
 * as null, and shortened metrics. What it does not say stays as it is: a placeholder stands for the present value. One
 * without a present value is left out, and so is an object of which nothing else remains and which is not there now. In
 * an array the items keep their places.
 *
 * @param plan the record's
 * @param present the member's value now; undefined when it has none
 * @returns `present` itself when nothing else is told; undefined when nothing but placeholders is
 */
export function valueToldOver(
	{ member, value, leavesOutNulls }: Statement,
	plan: MessagePlan,
	present: ExactJson | undefined,
): ExactJson | undefined {
	const told = member === "stats" ? withPerCallLists(value, present) : value;
	// Of a full state nearly all members are told as they are.
	if (present !== undefined && sameTree(told, present)) return present;
	return merge(told, present, leavesOutNulls, step(rootPlace(plan), {}, member));
}

function merge(
	told: ExactJson,
	present: ExactJson | undefined,
	leavesOutNulls: boolean,
	place: Place | undefined,
): ExactJson | undefined {
	if (told === REDACTED) return present;
	if (Array.isArray(told)) {
		const items = Array.isArray(present) ? present : undefined;
		let isSame = items?.length === told.length;
		const merged = told.map((item, index) => {
			const value = merge(item, items?.[index], leavesOutNulls, inside(place, told, index));
			isSame &&= value === items?.[index];
			return value ?? (isJsonObject(item) ? {} : item);
		});
		return isSame ? present : merged;
	}
	return isJsonObject(told) ? mergeObject(told, present, leavesOutNulls, place) : told;
}

function mergeObject(
	told: ExactJsonObject,
	present: ExactJson | undefined,
	leavesOutNulls: boolean,
	place: Place | undefined,
): ExactJson | undefined {
	const before = isJsonObject(present) && isOfOneArm(place, told, present) ? present : undefined;
	const fields = place && objectAt(place, told)?.members;
	const merged: ExactJsonObject = {};
	let isSame = before !== undefined;
	const names = Object.keys(told);
	for (const name of names) {
		const preferred = fields?.get(name)?.name ?? name;
		const member = Object.hasOwn(told, preferred) ? name : preferred;
		const last = memberOf(before, member);
		const value = merge(told[name] ?? null, last, leavesOutNulls, inside(place, told, name));
		isSame &&= value === last;
		if (value !== undefined) setMember(merged, member, value);
	}
	if (before === undefined) return names.length > 0 && Object.keys(merged).length === 0 ? present : merged;
	for (const name of Object.keys(before)) {
		if (Object.hasOwn(merged, name)) continue;
		if (leavesOutNulls && before[name] === null) setMember(merged, name, null);
		else isSame = false;
	}
	return isSame ? present : merged;
}

/** Whether two values of a union are of the same arm. What is present in another arm is not what is left unsaid. */
function isOfOneArm(place: Place | undefined, told: ExactJsonObject, present: ExactJsonObject): boolean {
	const message = place?.collection === undefined && place?.value?.type === "message" ? place.value.message : undefined;
	if (message?.form !== "union" || memberOf(told, message.discriminator) === REDACTED) return true;
	return armOf(message, told) === armOf(message, present);
}

/**
 * The place of a member or an element; undefined where no names are preferred: below what the schema describes, and in
 * what is neither object nor array.
 */
function inside(
	place: Place | undefined,
	json: ExactJsonObject | ExactJson[],
	token: string | number,
): Place | undefined {
	if (place === undefined || (place.value === undefined && place.collection === undefined)) return undefined;
	const told = Array.isArray(json) ? json[Number(token)] : json[token];
	return typeof told === "object" && told !== null ? step(place, json, token) : undefined;
}

/** Adds to each usage's metrics the lists that they leave out, as they stand now. */
function withPerCallLists(told: ExactJson, present: ExactJson | undefined): ExactJson {
	const usages = memberOf(told, "usage_to_metrics");
	if (!isJsonObject(told) || !isJsonObject(usages)) return told;
	const now = memberOf(present, "usage_to_metrics");
	const completed: ExactJsonObject = {};
	for (const [usage, metrics] of Object.entries(usages)) {
		const before = memberOf(now, usage);
		const lists: ExactJsonObject = {};
		for (const list of PER_CALL_LISTS) {
			const value = memberOf(before, list);
			if (value !== undefined) lists[list] = value;
		}
		setMember(completed, usage, isJsonObject(metrics) ? { ...lists, ...metrics } : metrics);
	}
	return { ...told, usage_to_metrics: completed };
}
