import { create, type DescField, type DescMessage, getOption, type JsonValue } from "@bufbuild/protobuf";
import { field as fieldOption, JsonType } from "../../../gen/conversations/options/v1/options_pb.js";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { toValue } from "../../../src/record/json/json-form.ts";

/** A place of the record where a string is a secret, found in the descriptors alone. */
export interface SecretPlace {
	/** Field names from the root of the record, for failure messages. */
	readonly name: string;
	/** Returns a record that has only an id and this string at the place. */
	plant(secret: string): ConversationInfo;
}

export const CONVERSATION_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

/** A map key that must be escaped in a JSON Pointer. */
const KEY = "a/b~c";
const UNNAMED: readonly [pointer: string, json: (secret: string) => JsonValue][] = [
	["/vendor_token", (secret) => secret],
	["/x~1api-key~0", (secret) => [secret]],
	["/vendor", (secret) => ({ plain: "p", list: [{ Authorization: { scheme: secret } }] })],
	["/vendor", (secret) => JSON.parse(`{"__proto__":{"cookie":${JSON.stringify(secret)}}}`)],
];

/**
 * Returns every place of the record that holds a secret, on all paths that visit no message type twice: fields that
 * `debug_redact` marks, and strings under the name of a secret in free-form JSON and in unnamed members.
 */
export function secretPlaces(): SecretPlace[] {
	const root = (init: Record<string, unknown>) => create(ConversationInfoSchema, { id: CONVERSATION_ID, ...init });
	const unnamed = UNNAMED.map(([pointer, json]) => ({
		name: `unnamed ${pointer}`,
		plant: (secret: string) => root({ unnamedMembers: { [pointer]: toValue(json(secret)) } }),
	}));
	const wrap = (field: DescField, value: unknown) => root(initOf(field, value));
	return [...placesIn(ConversationInfoSchema, "", [], false, wrap), ...unnamed];
}

/** Returns the fields of the record and of all messages in it, each once. */
export function recordFields(): DescField[] {
	const seen = new Map<string, DescMessage>();
	const visit = (desc: DescMessage): void => {
		if (seen.has(desc.typeName) || desc.typeName.startsWith("google.")) return;
		seen.set(desc.typeName, desc);
		for (const field of desc.fields) if (field.message !== undefined) visit(field.message);
	};
	visit(ConversationInfoSchema);
	return [...seen.values()].flatMap((desc) => desc.fields);
}

export function isMarked(field: DescField): boolean {
	return field.proto.options?.debugRedact ?? false;
}

function* placesIn(
	desc: DescMessage,
	name: string,
	above: readonly string[],
	marked: boolean,
	wrap: (field: DescField, value: unknown) => ConversationInfo,
): Generator<SecretPlace> {
	if (above.includes(desc.typeName)) return;
	for (const field of desc.fields) {
		if (field.name === "unnamed_members") continue;
		const secret = marked || isMarked(field);
		const here = `${name}${field.name}`;
		const plant = (value: unknown) => wrap(field, value);
		const type = field.message?.typeName;
		if (type === "google.protobuf.Struct" || type === "google.protobuf.Value") {
			const { jsonSchema, jsonTypes } = getOption(field, fieldOption);
			// Without objects there are no member names that could mark a secret.
			const isObject = jsonTypes.length === 0 || jsonTypes.includes(JsonType.OBJECT);
			if (!secret && (jsonSchema || !isObject)) continue;
			for (const [label, json] of freeForms(secret)) {
				const form = (text: string) => (type === "google.protobuf.Struct" ? json(text) : toValue(json(text)));
				yield { name: `${here} ${label}`, plant: (text) => plant(form(text)) };
			}
		} else if (field.message !== undefined) {
			const inner = field.message;
			yield* placesIn(inner, `${here}.`, [...above, desc.typeName], secret, (child, value) =>
				plant(create(inner, initOf(child, value))),
			);
		} else if (secret) yield { name: here, plant };
	}
}

/** Returns free-form JSON that holds a secret, under the name of a secret if the field itself is not one. */
function freeForms(secret: boolean): [label: string, json: (text: string) => { [name: string]: JsonValue }][] {
	if (secret) return [["inside", (text) => ({ anything: [true, { deeper: text }] })]];
	return [
		["direct", (text) => ({ plain: "p", token: text })],
		["below", (text) => ({ list: [{ "x/apiKey": { list: [text, 1, null, true] } }], plain: "p" })],
	];
}

function initOf(field: DescField, value: unknown): Record<string, unknown> {
	if (field.oneof !== undefined) return { [field.oneof.localName]: { case: field.localName, value } };
	if (field.fieldKind === "list") return { [field.localName]: [value] };
	if (field.fieldKind === "map") return { [field.localName]: { [KEY]: value } };
	return { [field.localName]: value };
}

/** Returns the JSON Pointers of the strings in a JSON value that equal `text`. */
export function pointersTo(text: string, json: JsonValue, at = ""): string[] {
	if (json === text) return [at];
	if (typeof json !== "object" || json === null) return [];
	return Object.entries(json).flatMap(([name, member]) =>
		pointersTo(text, member, `${at}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`),
	);
}
