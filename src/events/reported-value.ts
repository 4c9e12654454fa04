import { sameTree } from "../record/diff.ts";
import { type ExactJson, type ExactJsonObject, isJsonObject, memberOf, setMember } from "../record/json/json-value.ts";
import { armOf, childPlace, objectAt, type Place, rootPlace } from "../record/plan/place.ts";
import type { MessagePlan } from "../record/plan/plan.ts";
import { REDACTED } from "../userinfo.ts";
import type { ReportedMember } from "./state-update.ts";

/**
 * Stands in a reported value for a secret that this service has redacted, because it has no key to encrypt it. The sender
 * reported the secret, so it becomes part of the record, redacted. {@link REDACTED} is the sender's placeholder.
 */
export const HIDDEN = "\0redacted";

/** Lists of the record's metrics that a state update of `stats` omits. A full state contains them. */
const PER_CALL_LISTS = ["costs", "response_latencies", "token_usages"] as const;

/**
 * Returns the value of a member of the record after an event has reported it, with the names that the schema prefers.
 *
 * An event holds less than a posted record. It has placeholders for secrets, which a posted record omits or has as
 * null, and shortened metrics. A placeholder stands for the present value, and omitted lists of the metrics do not
 * change. A placeholder without a present value is omitted. So is an object of which nothing else remains and which is
 * not there now. Array items keep their positions.
 *
 * @param plan plan of the record
 * @param present the present value of the member; undefined when it has none
 * @returns `present` itself when the event reports no other value; undefined when it reports nothing but placeholders
 */
export function valueAfter(
	{ member, value, omitsNulls }: ReportedMember,
	plan: MessagePlan,
	present: ExactJson | undefined,
): ExactJson | undefined {
	const reported = member === "stats" ? withPerCallLists(value, present) : value;
	// Nearly all members of a full state are unchanged.
	if (present !== undefined && sameTree(reported, present)) return present;
	return merge(reported, present, omitsNulls, childPlace(rootPlace(plan), {}, member));
}

function merge(
	reported: ExactJson,
	present: ExactJson | undefined,
	omitsNulls: boolean,
	place: Place | undefined,
): ExactJson | undefined {
	if (reported === REDACTED) return present;
	if (reported === HIDDEN) return REDACTED;
	if (Array.isArray(reported)) {
		const items = Array.isArray(present) ? present : undefined;
		let isSame = items?.length === reported.length;
		const merged = reported.map((item, index) => {
			const value = merge(item, items?.[index], omitsNulls, placeInside(place, reported, index));
			isSame &&= value === items?.[index];
			return value ?? (isJsonObject(item) ? {} : item);
		});
		return isSame ? present : merged;
	}
	return isJsonObject(reported) ? mergeObject(reported, present, omitsNulls, place) : reported;
}

function mergeObject(
	reported: ExactJsonObject,
	present: ExactJson | undefined,
	omitsNulls: boolean,
	place: Place | undefined,
): ExactJson | undefined {
	const before = isJsonObject(present) && isSameArm(place, reported, present) ? present : undefined;
	const fields = place && objectAt(place, reported)?.members;
	const merged: ExactJsonObject = {};
	let isSame = before !== undefined;
	const names = Object.keys(reported);
	for (const name of names) {
		const preferred = fields?.get(name)?.name ?? name;
		const member = Object.hasOwn(reported, preferred) ? name : preferred;
		const last = memberOf(before, member);
		const value = merge(reported[name] ?? null, last, omitsNulls, placeInside(place, reported, name));
		isSame &&= value === last;
		if (value !== undefined) setMember(merged, member, value);
	}
	if (before === undefined) return names.length > 0 && Object.keys(merged).length === 0 ? present : merged;
	for (const name of Object.keys(before)) {
		if (Object.hasOwn(merged, name)) continue;
		if (omitsNulls && before[name] === null) setMember(merged, name, null);
		else isSame = false;
	}
	return isSame ? present : merged;
}

/** Whether two values of a union are of the same arm. A placeholder does not stand for a value of another arm. */
function isSameArm(place: Place | undefined, reported: ExactJsonObject, present: ExactJsonObject): boolean {
	const message = place?.collection === undefined && place?.value?.type === "message" ? place.value.message : undefined;
	if (message?.form !== "union" || memberOf(reported, message.discriminator) === REDACTED) return true;
	return armOf(message, reported) === armOf(message, present);
}

/**
 * Returns the place of a member or an element; undefined where the schema prefers no names: below the places that it
 * describes, and in a value that is neither object nor array.
 */
function placeInside(
	place: Place | undefined,
	json: ExactJsonObject | ExactJson[],
	token: string | number,
): Place | undefined {
	if (place === undefined || (place.value === undefined && place.collection === undefined)) return undefined;
	const reported = Array.isArray(json) ? json[Number(token)] : json[token];
	return typeof reported === "object" && reported !== null ? childPlace(place, json, token) : undefined;
}

/** Adds the present lists to the metrics of each usage that omit them. */
function withPerCallLists(reported: ExactJson, present: ExactJson | undefined): ExactJson {
	const usages = memberOf(reported, "usage_to_metrics");
	if (!isJsonObject(reported) || !isJsonObject(usages)) return reported;
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
	return { ...reported, usage_to_metrics: completed };
}
