import { parsePointer } from "../json/pointer.ts";
import type { MessagePlan, ValuePlan } from "../plan/plan.ts";
import { MCP_SERVERS, OPEN, SECRET, SECRET_STRINGS, SERVERS, type Surroundings } from "./free-form-secrets.ts";

/** Bounds what a hostile sender can have remembered. */
const MAX_KNOWN = 4096;
const MAX_KNOWN_LENGTH = 256;

/** Something that a JSON value may be: a value, or a list or map of values. */
interface Candidate {
	readonly value: ValuePlan;
	readonly collection: boolean;
}

/**
 * Derives what the fields around an unnamed member say about secrets in it, from its pointer. Of a union all arms
 * count, as the pointer does not tell which one it is.
 */
export function surroundingsOfUnnamed(plan: MessagePlan): (pointer: string) => Surroundings {
	const known = new Map<string, Surroundings>();
	return (pointer) => {
		const parent = pointer.slice(0, pointer.lastIndexOf("/"));
		const before = known.get(parent);
		if (before !== undefined) return before;
		const surroundings = surroundingsIn(plan, parsePointer(parent) ?? []);
		if (known.size < MAX_KNOWN && parent.length <= MAX_KNOWN_LENGTH) known.set(parent, surroundings);
		return surroundings;
	};
}

function surroundingsIn(plan: MessagePlan, path: readonly string[]): Surroundings {
	let candidates: readonly Candidate[] = [{ value: { type: "message", message: plan }, collection: false }];
	let unnamedSecret = false;
	for (const token of path) {
		const next: Candidate[] = [];
		for (const candidate of candidates) {
			if (candidate.collection) next.push({ value: candidate.value, collection: false });
			else if (candidate.value.type === "message" && !stepInto(candidate.value.message, token, next)) return SECRET;
		}
		candidates = next;
	}
	for (const { value } of candidates) unnamedSecret ||= value.type === "message" && hasSecretUnnamed(value.message);
	if (unnamedSecret) return SECRET_STRINGS;
	return path.at(-1) === MCP_SERVERS ? SERVERS : OPEN;
}

/** Gathers what a token leads to; false when that is a secret as a whole. */
function stepInto(plan: MessagePlan, token: string, into: Candidate[]): boolean {
	if (plan.form === "union") {
		for (const { value, secret } of plan.arms.values()) {
			if (secret) continue;
			if (value.type === "message" && !stepInto(value.message, token, into)) return false;
		}
		return true;
	}
	const [only] = plan.fields;
	const field = plan.form === "bare" ? only : plan.members.get(token);
	if (field === undefined) return true;
	if (field.secret) return false;
	// A bare message is its list or map itself.
	into.push({ value: field.value, collection: plan.form !== "bare" && field.shape !== "single" });
	return true;
}

function hasSecretUnnamed(plan: MessagePlan): boolean {
	if (plan.form !== "union") return plan.unnamedSecret;
	return [...plan.arms.values()].some(({ value }) => value.type === "message" && hasSecretUnnamed(value.message));
}
