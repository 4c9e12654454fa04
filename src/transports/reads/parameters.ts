import type { IncomingHttpHeaders } from "node:http";
import {
	create,
	type DescEnum,
	type DescField,
	type DescMessage,
	fromJson,
	getOption,
	type JsonObject,
	type JsonValue,
	type MessageShape,
	ScalarType,
} from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { enum_value } from "../../../gen/conversations/options/v1/options_pb.js";
import { uuid } from "../../conversations/read/filter.ts";
import { invalid, ServiceError } from "../../errors.ts";
import { isJsonObject } from "../../record/json/json-value.ts";
import { parseDateTime } from "../../record/json/scalars.ts";
import { planEnum } from "../../record/plan.ts";
import { percentDecode } from "../http/router.ts";

// How the request of an RPC is read from an HTTP request. All of it follows from the descriptor of the request.

/** A field of a request, or of a message in it such as a filter, that is a parameter of the path or of the query. */
export interface Parameter {
	readonly name: string;
	readonly in: "path" | "query";
	readonly field: DescField;
	/** Field of the request whose message has the field; undefined when it is the request's own. */
	readonly holder: DescField | undefined;
}

/**
 * Returns the parameters of a request, in the order of the fields.
 *
 * - A variable `{name}` of the path is the field of this name, and `{id}` may also be the field `conversation_id`.
 * - Every other field is a parameter of the query. The fields of a message are parameters of their own, and a list or a
 *   map is a parameter that is repeated for each value, named in the singular.
 */
export function parametersOf(
	input: DescMessage,
	path: string,
	hasBody: boolean,
	omitted: readonly string[] = [],
): readonly Parameter[] {
	const variables = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name);
	const inPath = variables.map((name): Parameter => {
		const field = input.fields.find((field) => field.name === name);
		const found = field ?? (name === "id" ? input.field.conversationId : undefined);
		if (found === undefined) throw new Error(`${input.typeName} has no field for {${name}} in ${path}`);
		return { name, in: "path", field: found, holder: undefined };
	});
	if (hasBody) return inPath;
	const taken = new Set(inPath.map(({ field }) => field));
	const inQuery = input.fields.flatMap((field): Parameter[] => {
		if (taken.has(field) || omitted.includes(field.name)) return [];
		if (field.fieldKind !== "message" || field.message === TimestampSchema) return [ofQuery(field)];
		return field.message.fields.filter(({ name }) => !omitted.includes(name)).map((inner) => ofQuery(inner, field));
	});
	// A field for one value is superseded by a field for several, because the parameter can be repeated.
	const lists = new Set(inQuery.filter(isRepeatable).map(({ name }) => name));
	return [...inPath, ...inQuery.filter((one) => isRepeatable(one) || !lists.has(one.name))];
}

/** Parameters for repeated fields whose singular is not the name without its last letter. */
const SINGULAR: ReadonlyMap<string, string> = new Map([
	["execution_statuses", "execution_status"],
	["execution_statuses_not", "execution_status_not"],
	["kinds_not", "kind_not"],
]);

/** Returns the query parameter for a field. One that is repeated for each value of the field is named in the singular. */
function ofQuery(field: DescField, holder?: DescField): Parameter {
	const { name } = field;
	const singular = isRepeatable({ field }) ? (SINGULAR.get(name) ?? name.replace(/s$/, "")) : name;
	return { name: singular, in: "query", field, holder };
}

export function isRepeatable({ field }: Pick<Parameter, "field">): boolean {
	return field.fieldKind === "list" || field.fieldKind === "map";
}

/**
 * Reads a request from the variables of its path, and from its query or its body.
 *
 * @param body the JSON body; undefined if the request has none, and the fields come from the query
 * @throws ServiceError `invalid_argument` that names the parameter or the member of the body
 */
export function readRequest<Input extends DescMessage>(
	input: Input,
	parameters: readonly Parameter[],
	{ params, search, body }: { params: Readonly<Record<string, string>>; search: string; body?: Buffer | undefined },
): MessageShape<Input> {
	const request = body === undefined ? create(input) : readJson(input, parameters, body);
	const target = reflect(input, request);
	const inQuery = parameters.filter((one) => one.in === "query");
	const query = readQuery(
		search,
		inQuery.map(({ name }) => name),
		inQuery.filter(isRepeatable).map(({ name }) => name),
	);
	const holders = new Map<DescField, ReflectMessage>();
	for (const { holder } of inQuery)
		if (holder?.fieldKind === "message" && !holders.has(holder)) holders.set(holder, reflect(holder.message));
	for (const parameter of parameters) {
		const { name, field, holder } = parameter;
		if (parameter.in === "query")
			setFromQuery((holder && holders.get(holder)) ?? target, parameter, query.getAll(name));
		else {
			const text = params[name] ?? "";
			target.set(field, field.name === name ? text : uuid(text, name));
		}
	}
	for (const [holder, message] of holders) target.set(holder, message);
	return request;
}

/** Sets a field to the values that its parameter has in the query. An absent one leaves the field unset. */
function setFromQuery(target: ReflectMessage, { name, field }: Parameter, texts: readonly string[]): void {
	const [text] = texts;
	if (text === undefined) return;
	switch (field.fieldKind) {
		case "list": {
			const list = target.get(field);
			for (const text of texts)
				if (field.listKind !== "enum") list.add(text);
				else if (text !== "") list.add(numberOf(field.enum, name, text));
			return;
		}
		case "map": {
			const map = target.get(field);
			for (const [key, value] of pairsOf(name, texts)) map.set(key, value);
			return;
		}
		case "enum": {
			const { byName } = planEnum(field.enum);
			// An empty text selects any value of an enum of the record.
			if (text !== "" || isOfRequests(field.enum)) target.set(field, byName.get(word(name, text, [...byName.keys()])));
			return;
		}
		case "message":
			target.set(field, reflect(TimestampSchema, dateTime(name, text)));
			return;
		case "scalar":
			target.set(field, scalarOf(field.scalar, name, text));
	}
}

function scalarOf(type: ScalarType, name: string, text: string): string | number | bigint | boolean {
	switch (type) {
		case ScalarType.STRING:
			return text;
		case ScalarType.INT64:
			return wholeNumber(name, text);
		case ScalarType.INT32: {
			const value = wholeNumber(name, text);
			if (value > MAX_INT32) throw invalid(name, `must be at most ${MAX_INT32}`);
			return Number(value);
		}
		case ScalarType.DOUBLE:
			if (!/^-?\d{1,400}(\.\d{1,400})?([eE][-+ ]?\d{1,4})?$/.test(text)) throw invalid(name, "must be a number");
			// A plus sign that was not percent-encoded arrives as a space.
			return Number(text.replace(" ", "+"));
		case ScalarType.BOOL:
			if (text !== "true" && text !== "false") throw invalid(name, "must be true or false");
			return text === "true";
		default:
			throw new Error(`${name} cannot be a query parameter`);
	}
}

export const MAX_INT32 = 2_147_483_647;
export const MAX_INT64 = 2n ** 63n - 1n;

/** Returns the whole number from 0 to {@link MAX_INT64} that decimal digits denote. */
function wholeNumber(name: string, text: string): bigint {
	const value = /^\d{1,19}$/.test(text) ? BigInt(text) : undefined;
	if (value === undefined || value > MAX_INT64) throw invalid(name, "must be a whole number, 0 or more");
	return value;
}

function dateTime(name: string, text: string): Timestamp {
	// A plus sign that was not percent-encoded arrives as a space, which no date-time contains.
	const time = parseDateTime(text.replace(" ", "+"));
	if (time === undefined) throw invalid(name, "must be an ISO 8601 date-time such as 2026-01-31T12:00:00Z");
	return time;
}

export function word<Word extends string>(name: string, text: string, words: readonly Word[]): Word {
	const found = words.find((candidate) => candidate === text);
	if (found === undefined) throw invalid(name, `must be one of ${words.join(", ")}`);
	return found;
}

const MAX_SHOWN_NAME = 64;

/**
 * Returns the parameters of a query.
 *
 * @throws ServiceError `invalid_argument` for an unknown parameter, for one that occurs several times although it may not,
 *   and for one that is not percent-encoded UTF-8 (RFC 3986, section 2)
 */
export function readQuery(
	search: string,
	names: readonly string[],
	repeatable: readonly string[] = [],
): URLSearchParams {
	// URLSearchParams would replace other bytes by U+FFFD, and a filter with them would find nothing.
	for (const parameter of search.split("&"))
		if (!/^[\x21-\x7e]*$/.test(parameter) || percentDecode(parameter) === undefined)
			throw invalid(quoted(parameter.split("=", 1)[0] ?? ""), "is not percent-encoded UTF-8");
	const parameters = new URLSearchParams(search);
	for (const name of new Set(parameters.keys())) {
		if (!names.includes(name)) throw invalid(quoted(name), "is not known");
		if (!repeatable.includes(name) && parameters.getAll(name).length > 1) throw invalid(name, "may be given only once");
	}
	return parameters;
}

function quoted(name: string): string {
	const shown = name.length > MAX_SHOWN_NAME ? `${name.slice(0, MAX_SHOWN_NAME)}…` : name;
	return `query parameter ${JSON.stringify(shown)}`;
}

/** Header by which a client of server-sent events resumes. */
export const LAST_EVENT_ID = "Last-Event-ID";

/** Returns the sequence number after which a stream resumes; undefined for a client that does not resume. */
export function lastEventId(headers: IncomingHttpHeaders): bigint | undefined {
	const text = headers["last-event-id"];
	return text === undefined || text === "" ? undefined : wholeNumber(LAST_EVENT_ID, String(text));
}

/** Whether an enum is one of requests only, whose zero value means the same as the first word. */
export function isOfRequests({ values }: DescEnum): boolean {
	return values.every((value) => getOption(value, enum_value).name === "");
}

function numberOf(desc: DescEnum, name: string, text: string): number {
	const number = planEnum(desc).byName.get(text);
	if (number === undefined) throw invalid(name, `is not a known ${/[A-Z][a-z]+$/.exec(desc.name)?.[0].toLowerCase()}`);
	return number;
}

/** The form of a parameter for an entry of a map, such as `tag`. */
export const PAIR = /^([^:]+):(.*)$/s;

/** Returns the entries of texts `key:value`. The value may contain further colons. */
function pairsOf(name: string, texts: readonly string[]): ReadonlyMap<string, string> {
	const pairs = new Map<string, string>();
	for (const text of texts) {
		const [, key, value] = PAIR.exec(text) ?? [];
		if (key === undefined || value === undefined) throw invalid(name, "must have the form key:value");
		if ((pairs.get(key) ?? value) !== value) throw invalid(name, "has two values for the same key");
		pairs.set(key, value);
	}
	return pairs;
}

/**
 * Reads a JSON body: the JSON form of protobuf, in which a field has its name in the .proto file or that in camel case,
 * and a value of an enum may also be written as in a query. An empty body is a request without fields.
 */
function readJson<Input extends DescMessage>(
	input: Input,
	inPath: readonly Parameter[],
	body: Buffer,
): MessageShape<Input> {
	let json: JsonValue;
	try {
		json = body.length === 0 ? {} : JSON.parse(body.toString());
	} catch (cause) {
		throw new ServiceError("invalid_argument", "The body is not JSON", { cause });
	}
	const taken = new Set(inPath.map(({ field }) => field));
	const fields = input.fields.filter((field) => !taken.has(field));
	if (!isJsonObject(json)) {
		const names = new Intl.ListFormat("en").format(fields.map(({ name }) => name));
		throw new ServiceError("invalid_argument", `The body must be a JSON object with ${names}`);
	}
	return fromJson(input, judged(fields, json, ""));
}

/**
 * Returns an object with numbers in place of words of enums, whose members are those of the fields.
 *
 * @param place path to the object, with a dot before the names of its members
 */
function judged(fields: readonly DescField[], json: JsonObject, place: string): JsonObject {
	const members: JsonObject = {};
	for (const [name, value] of Object.entries(json)) {
		const field = fields.find((field) => field.name === name || field.jsonName === name);
		if (field === undefined)
			throw new ServiceError("invalid_argument", `${place.slice(0, -1) || "The body"} has a member that is not known`);
		const at = place + field.name;
		if (Object.hasOwn(members, field.jsonName)) throw invalid(at, "may be given only once");
		const member = { [field.jsonName]: judgedValue(field, value, at) };
		try {
			fromJson(field.parent, member);
		} catch {
			throw invalid(at, `must be ${formOf(field)}`);
		}
		Object.assign(members, member);
	}
	return members;
}

/** Returns the value of a field with numbers in place of words of enums, and with its messages judged. */
function judgedValue(field: DescField, json: JsonValue, at: string): JsonValue {
	const { enum: desc, message, fieldKind } = field;
	if (json === null || fieldKind === "map") return json;
	if (fieldKind === "list" && Array.isArray(json))
		return json.map((item, index) => judgedValue(field, item, `${at}[${index}]`));
	if (desc !== undefined) return (typeof json === "string" ? planEnum(desc).byName.get(json) : undefined) ?? json;
	if (message === undefined || message.file.proto.package === "google.protobuf") return json;
	if (!isJsonObject(json)) throw invalid(at, "must be an object");
	return judged(message.fields, json, `${at}.`);
}

function formOf(field: DescField): string {
	const { enum: desc, message, scalar, fieldKind } = field;
	let one = (scalar && SCALAR_FORMS[scalar]) ?? "a whole number";
	if (desc !== undefined) one = `one of ${[...planEnum(desc).byName.keys()].join(", ")}`;
	else if (message === TimestampSchema) one = "an ISO 8601 date-time such as 2026-01-31T12:00:00Z";
	else if (message !== undefined) one = "an object";
	if (fieldKind === "map") return `an object in which each value is ${one}`;
	return fieldKind === "list" ? `a list in which each value is ${one}` : one;
}

const SCALAR_FORMS: Partial<Record<ScalarType, string>> = {
	[ScalarType.STRING]: "a text",
	[ScalarType.BOOL]: "true or false",
	[ScalarType.BYTES]: "a text in base64",
	[ScalarType.DOUBLE]: "a number",
};
