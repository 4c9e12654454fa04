import { parsePointer } from "../json/pointer.ts";
import type { MessagePlan, ValuePlan } from "../plan/plan.ts";
import {
	MCP_SERVERS,
	PUBLIC_CONTEXT,
	SECRET_CONTEXT,
	SECRET_STRINGS_CONTEXT,
	SERVERS_CONTEXT,
	type SecretContext,
} from "./free-form-secrets.ts";

/** Maximum number of cached pointers. It keeps a hostile sender from filling memory. */
const MAX_CACHED_POINTERS = 4096;
/** Maximum length of a cached pointer, in UTF-16 code units. */
const MAX_CACHED_LENGTH = 256;

/** What the plan allows at a place: a value, or a list or map of such values. */
interface Candidate {
	readonly value: ValuePlan;
	readonly collection: boolean;
}

/**
 * Returns a function that derives the context of the object around an unnamed member from the member's pointer. All
 * arms of a union count, because the pointer does not show which arm is set.
 */
export function contextAroundUnnamed(plan: MessagePlan): (pointer: string) => SecretContext {
	const cache = new Map<string, SecretContext>();
	return (pointer) => {
		const parent = pointer.slice(0, pointer.lastIndexOf("/"));
		const before = cache.get(parent);
		if (before !== undefined) return before;
		const context = contextAt(plan, parsePointer(parent) ?? []);
		if (cache.size < MAX_CACHED_POINTERS && parent.length <= MAX_CACHED_LENGTH) cache.set(parent, context);
		return context;
	};
}

/**
 * Returns a predicate of paths: whether the fields at a place, or on the path to it, make the value there a secret. It
 * is for values that break the schema. All arms of a union count.
 */
export function deriveSecretPathTest(plan: MessagePlan): (path: readonly (string | number)[]) => boolean {
	return (path) => {
		const tokens = path.map(String);
		const here = candidatesAt(plan, tokens);
		const outer = candidatesAt(plan, tokens.slice(0, -1)) ?? [];
		return here === undefined || here.some(hasSecretArm) || outer.some(hasSecretUnnamedMembers);
	};
}

function hasSecretArm({ value }: Candidate): boolean {
	if (value.type !== "message" || value.message.form !== "union") return false;
	return [...value.message.arms.values()].some(({ secret }) => secret);
}

function contextAt(plan: MessagePlan, path: readonly string[]): SecretContext {
	const candidates = candidatesAt(plan, path);
	if (candidates === undefined) return SECRET_CONTEXT;
	if (candidates.some(hasSecretUnnamedMembers)) return SECRET_STRINGS_CONTEXT;
	return path.at(-1) === MCP_SERVERS ? SERVERS_CONTEXT : PUBLIC_CONTEXT;
}

/** Returns what the plan allows at the end of a path; undefined when the value there is a secret. */
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

/** Adds to `into` what a token leads to. Returns false when the whole value there is a secret. */
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
	// The JSON form of a bare message is its list or map, so the token already leads to an item.
	into.push({ value: field.value, collection: plan.form !== "bare" && field.shape !== "single" });
	return true;
}

/** Whether the strings in unnamed members of a candidate are secrets. */
function hasSecretUnnamedMembers({ value }: Candidate): boolean {
	return value.type === "message" && keepsSecretUnnamedMembers(value.message);
}

function keepsSecretUnnamedMembers(plan: MessagePlan): boolean {
	if (plan.form !== "union") return plan.unnamedSecret;
	return [...plan.arms.values()].some(
		({ value }) => value.type === "message" && keepsSecretUnnamedMembers(value.message),
	);
}
