import { stringifyExactJson } from "../record/json/exact-json.ts";
import {
	type ExactJson,
	type ExactJsonObject,
	isJsonObject,
	memberOf,
	parsePointer,
	setMember,
	toPointer,
} from "../record/json/json-value.ts";
import { pathInJson } from "../record/plan.ts";
import type { RecordFormat } from "../record/record-format.ts";
import { PUBLIC_CONTEXT, SECRET_CONTEXT, type Secret } from "../record/secrets/free-form-secrets.ts";
import {
	deriveSecretPathTest,
	deriveSecretWalk,
	type Replace,
	redactionVersionOf,
	replaceSecretsInMember,
} from "../record/secrets/secret-walk.ts";
import { hasUserinfo, replaceUserinfo } from "../userinfo.ts";
import { FULL_STATE, STATE_UPDATE } from "./state-update.ts";

/** The members that all events have, with the properties of the message. */
export const ENVELOPE = new Map<string, "id" | "timestamp" | "source" | "kind" | "parentId">([
	["id", "id"],
	["timestamp", "timestamp"],
	["source", "source"],
	["kind", "kind"],
	["parent_id", "parentId"],
]);

/**
 * Finds the secrets in events. In the members of the record that a state update reports, it finds the same secrets as
 * in a record. All other members are free-form JSON, except that those of the envelope hold no secrets.
 */
export function eventSecrets(format: RecordFormat) {
	/** Version of the rules by which secrets are found; a safe integer above 0. */
	const version = redactionVersionOf(format.plan);
	const walkRecord = deriveSecretWalk(format.plan);
	const isSecretPath = deriveSecretPathTest(format.plan);
	return { version, replace };

	/**
	 * Replaces the secrets of an event in place, and the user names and passwords in URLs.
	 *
	 * @param bigints whether the event may contain bigints
	 * @param replace receives the JSON Pointer within the event; is called for each URL in a string
	 * @returns the event's JSON text
	 */
	function replace(event: ExactJsonObject, bigints: boolean, replace: Replace): string {
		const key = event.kind === STATE_UPDATE ? memberOf(event, "key") : undefined;
		const isReport = typeof key === "string";
		walkMembers(event, (name, member) => {
			if (isReport && name === "key") return member;
			if (isReport && name === "value") return walkReported(key, member, bigints, replace);
			return replaceSecretsInMember(member, name, PUBLIC_CONTEXT, replace);
		});
		const text = stringifyExactJson(event);
		if (!hasUserinfo(text)) return text;
		const hide: Replace = (value, pointer) =>
			typeof value === "string" ? replaceUserinfo(value, (userinfo) => String(replace(userinfo, pointer))) : value;
		walkMembers(event, (name, member) => replaceSecretsInMember(member, name, SECRET_CONTEXT, hide));
		return stringifyExactJson(event);
	}

	function walkMembers(event: ExactJsonObject, walk: (name: string, member: ExactJson) => ExactJson): void {
		for (const name of Object.keys(event)) {
			if (ENVELOPE.has(name)) continue;
			const member = event[name] ?? null;
			const walked = walk(name, member);
			if (walked !== member) setMember(event, name, walked);
		}
	}

	/** @returns the reported value with its secrets replaced: the same object, or another value */
	function walkReported(key: string, value: ExactJson, bigints: boolean, replace: Replace): ExactJson {
		if (key === FULL_STATE && isJsonObject(value)) {
			replaceInMembers(value, bigints, (secret, pointer) => replace(secret, `/value${pointer}`));
			return value;
		}
		const { length } = toPointer([key]);
		const members: ExactJsonObject = { [key]: value };
		replaceInMembers(members, bigints, (secret, pointer) => replace(secret, `/value${pointer.slice(length)}`));
		return members[key] ?? null;
	}

	function replaceInMembers(members: ExactJsonObject, bigints: boolean, replace: Replace): void {
		const { record, others } = format.fromMembers(members, bigints);
		const pointers: string[] = [];
		walkRecord(record, (secret, pointer) => {
			pointers.push(pointer);
			return secret;
		});
		for (const pointer of pointers) {
			const path = pathInJson(members, format.plan, parsePointer(pointer) ?? []);
			const isFound = replaceAt(members, path, (secret) => replace(secret, toPointer(path)));
			if (!isFound) throw new TypeError("a secret of the record has no place in its JSON form");
		}
		for (const name of others) {
			const member = members[name] ?? null;
			setMember(members, name, replaceSecretsInMember(member, name, PUBLIC_CONTEXT, replace, isSecretPath));
		}
	}
}

/** Replaces the string or number at a path in a JSON object. Returns whether there is one. */
export function replaceAt(json: ExactJsonObject, path: readonly string[], by: (value: Secret) => Secret): boolean {
	const name = path.at(-1);
	const container = path.slice(0, -1).reduce<ExactJson | undefined>(memberOf, json);
	const value = name === undefined ? undefined : memberOf(container, name);
	if (name === undefined || value === undefined || value === null) return false;
	if (typeof value === "boolean" || typeof value === "object") return false;
	if (Array.isArray(container)) container[Number(name)] = by(value);
	else if (isJsonObject(container)) setMember(container, name, by(value));
	return true;
}
