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

/**
 * Derives whether the fields on the way to a place, or at it, say that what stands there is a secret: for values that
 * break the schema. Of a union all arms count.
 */
export function placesOfSecrets(plan: MessagePlan): (path: readonly (string | number)[]) => boolean {
	return (path) => {
		const tokens = path.map(String);
		const here = candidatesAt(plan, tokens);
		const outer = candidatesAt(plan, tokens.slice(0, -1)) ?? [];
		return here === undefined || here.some(hasSecretArm) || outer.some(isSecretUnnamed);
	};
}

function hasSecretArm({ value }: Candidate): boolean {
	if (value.type !== "message" || value.message.form !== "union") return false;
	return [...value.message.arms.values()].some(({ secret }) => secret);
}

function surroundingsIn(plan: MessagePlan, path: readonly string[]): Surroundings {
	const candidates = candidatesAt(plan, path);
	if (candidates === undefined) return SECRET;
	if (candidates.some(isSecretUnnamed)) return SECRET_STRINGS;
	return path.at(-1) === MCP_SERVERS ? SERVERS : OPEN;
}

/** What may be at the end of a path; undefined when it is a secret. */
function candidatesAt(plan: MessagePlan, path: readonly string[]): readonly Candidate[] | undefined {
	let candidates: readonly Candidate[] = [{ value: { type: "message", message: plan }, collection: false }];
	for (const token of path) {
		const next: Candidate[] = [];
		for (const candidate of candidates) {
			if (candidate.collection) next.push({ value: candidate.value, collection: false });
			else if (candidate.value.type === "message" && !stepInto(candidate.value.message, token, next)) return undefined;
		}
		candidates = next;
	}
	return candidates;
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

/** Whether unnamed members of what a candidate describes are secrets. */
function isSecretUnnamed({ value }: Candidate): boolean {
	return value.type === "message" && hasSecretUnnamed(value.message);
}

function hasSecretUnnamed(plan: MessagePlan): boolean {
	if (plan.form !== "union") return plan.unnamedSecret;
	return [...plan.arms.values()].some(({ value }) => value.type === "message" && hasSecretUnnamed(value.message));
}
