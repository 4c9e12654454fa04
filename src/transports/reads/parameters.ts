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
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import { enum_value } from "../../../gen/conversations/options/v1/options_pb.js";
import { invalid, uuid } from "../../conversations/read/filter.ts";
import { ServiceError } from "../../errors.ts";
import { planEnum } from "../../record/plan.ts";
import { Query } from "./query.ts";

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
		return field.message.fields.map((inner) => ofQuery(inner, field));
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
function parameterName({ name, fieldKind }: DescField): string {
	if (fieldKind !== "list" && fieldKind !== "map") return name;
	return SINGULAR.get(name) ?? name.replace(/s$/, "");
}

function ofQuery(field: DescField, holder?: DescField): Parameter {
	return { name: parameterName(field), in: "query", field, holder };
}

/** Whether a parameter may occur several times. */
export function isRepeatable({ field }: Parameter): boolean {
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
	const query = new Query(
		search,
		inQuery.map(({ name }) => name),
		inQuery.filter(isRepeatable).map(({ name }) => name),
	);
	const holders = new Map<DescField, ReflectMessage>();
	for (const { holder } of inQuery)
		if (holder?.fieldKind === "message" && !holders.has(holder)) holders.set(holder, reflect(holder.message));
	for (const parameter of parameters) {
		const { name, field, holder } = parameter;
		if (parameter.in === "query") setFromQuery((holder && holders.get(holder)) ?? target, parameter, query);
		else {
			const text = params[name] ?? "";
			target.set(field, field.name === name ? text : uuid(text, name));
		}
	}
	for (const [holder, message] of holders) target.set(holder, message);
	return request;
}

function setFromQuery(target: ReflectMessage, { name, field }: Parameter, query: Query<string>): void {
	switch (field.fieldKind) {
		case "list": {
			const list = target.get(field);
			for (const text of query.texts(name))
				if (field.listKind !== "enum") list.add(text);
				else if (text !== "") list.add(numberOf(field.enum, name, text));
			return;
		}
		case "map": {
			const map = target.get(field);
			for (const [key, value] of pairsOf(name, query.texts(name))) map.set(key, value);
			return;
		}
		case "enum": {
			const number = enumOf(field.enum, name, query);
			if (number !== undefined) target.set(field, number);
			return;
		}
		case "message": {
			const time = query.dateTime(name);
			if (time !== undefined) target.set(field, reflect(TimestampSchema, time));
			return;
		}
		case "scalar": {
			const value = scalarOf(field.scalar, name, query);
			if (value !== undefined) target.set(field, value);
		}
	}
}

function scalarOf(type: ScalarType, name: string, query: Query<string>) {
	switch (type) {
		case ScalarType.STRING:
			return query.text(name);
		case ScalarType.INT32:
			return query.smallNumber(name);
		case ScalarType.INT64:
			return query.number(name);
		case ScalarType.DOUBLE:
			return query.decimal(name);
		case ScalarType.BOOL:
			return query.boolean(name);
		default:
			throw new Error(`${name} cannot be a query parameter`);
	}
}

/** Whether an enum is one of requests only, whose zero value means the same as the first word. */
export function isOfRequests({ values }: DescEnum): boolean {
	return values.every((value) => getOption(value, enum_value).name === "");
}

/** Returns the number of a word; undefined when the parameter is absent. */
function enumOf(desc: DescEnum, name: string, query: Query<string>): number | undefined {
	const { byName } = planEnum(desc);
	const [first, ...others] = byName.keys();
	if (first === undefined) throw new Error(`${desc.typeName} has no values`);
	// An empty text selects any value of an enum of the record.
	if (query.text(name) === "" && !isOfRequests(desc)) return undefined;
	return byName.get(query.word(name, [first, ...others]));
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
	const names = new Intl.ListFormat("en").format(fields.map(({ name }) => name));
	return fromJson(input, judged(fields, json, "", `The body must be a JSON object with ${names}`));
}

/**
 * Returns an object whose members are those of the fields, each judged.
 *
 * @param place path to the object, before the names of its members
 * @param otherwise says that it must be an object
 */
function judged(fields: readonly DescField[], json: JsonValue, place: string, otherwise: string): JsonObject {
	if (typeof json !== "object" || json === null || Array.isArray(json))
		throw new ServiceError("invalid_argument", otherwise);
	const members: JsonObject = {};
	for (const [name, value] of Object.entries(json)) {
		const field = fields.find((field) => field.name === name || field.jsonName === name);
		if (field === undefined)
			throw new ServiceError("invalid_argument", `${place === "" ? "The body" : place} has a member that is not known`);
		const at = place === "" ? field.name : `${place}.${field.name}`;
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
	const { enum: desc, message } = field;
	if (json === null || (desc === undefined && message === undefined)) return json;
	if (field.fieldKind === "list" && Array.isArray(json))
		return json.map((item, index) => judgedItem(field, item, `${at}[${index}]`));
	return field.fieldKind === "enum" || field.fieldKind === "message" ? judgedItem(field, json, at) : json;
}

function judgedItem({ enum: desc, message }: DescField, json: JsonValue, at: string): JsonValue {
	if (desc !== undefined) return (typeof json === "string" ? planEnum(desc).byName.get(json) : undefined) ?? json;
	if (message === undefined || message.file.proto.package === "google.protobuf") return json;
	return judged(message.fields, json, at, `${at} must be an object`);
}

/** Returns what the JSON form of a field must be. */
function formOf(field: DescField): string {
	const [one, several] = formsOf(field);
	if (field.fieldKind === "map") return `an object with ${several}`;
	return field.fieldKind === "list" ? `a list of ${several}` : one;
}

function formsOf({ enum: desc, message, scalar }: DescField): readonly [one: string, several: string] {
	if (desc !== undefined) {
		const words = [...planEnum(desc).byName.keys()].join(", ");
		return [`one of ${words}`, `words, each one of ${words}`];
	}
	if (message === TimestampSchema)
		return ["an ISO 8601 date-time such as 2026-01-31T12:00:00Z", "ISO 8601 date-times such as 2026-01-31T12:00:00Z"];
	if (message !== undefined) return ["an object", "objects"];
	switch (scalar) {
		case ScalarType.STRING:
			return ["a text", "texts"];
		case ScalarType.BOOL:
			return ["true or false", "values true or false"];
		case ScalarType.BYTES:
			return ["a text in base64", "texts in base64"];
		case ScalarType.DOUBLE:
		case ScalarType.FLOAT:
			return ["a number", "numbers"];
		default:
			return ["a whole number", "whole numbers"];
	}
}
