import { existsSync } from "node:fs";
import {
	type DescField,
	type DescMessage,
	type DescMethodUnary,
	isMessage,
	type JsonValue,
	type Message,
	ScalarType,
	toJson,
	toJsonString,
} from "@bufbuild/protobuf";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import { ConnectError, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { COMMAND } from "../access/access-keys.ts";
import type { Config } from "../config/config.ts";
import { makeParts, type Parts } from "../make-parts.ts";
import { planEnum } from "../record/plan.ts";
import { inProcessTransport } from "../rpc/rpc-method.ts";
import { createLogger } from "../telemetry/log.ts";
import { commandSocketOf, isListening } from "../transports/http/http-listener.ts";
import { parametersOf, readRequest } from "../transports/reads/parameters.ts";
import { type Call, expiryOption, SETTINGS, sequenceOption, UsageError, type Values } from "./options.ts";
import { print, tableOf } from "./output.ts";

/** The way of a command to the data. */
export interface Reached {
	/** Calls the RPCs with all scopes, without an owner, under the name `command`. */
	readonly transport: Transport;
	/** The socket of the running service, or the parts that this process has made in its place. */
	readonly by: { readonly socketPath: string } | { readonly parts: Parts };
}

/**
 * Lets a command work with the data of the configuration. A service that has a SQLite database open is asked over its Unix
 * socket. Otherwise this process makes the parts of the service until the work has ended; what they log goes to standard
 * error. With PostgreSQL this process is one more client of the database.
 */
export async function reachService<Result>(
	config: Config,
	work: (reached: Reached) => Promise<Result>,
): Promise<Result> {
	await using opened = new AsyncDisposableStack();
	const reached = await reach(config, opened);
	try {
		return await work(reached);
	} catch (error) {
		throw error instanceof ConnectError ? new Error(error.rawMessage) : error;
	}
}

async function reach(config: Config, opened: AsyncDisposableStack): Promise<Reached> {
	const { database } = config;
	if (database.engine === "sqlite") {
		if (!existsSync(database.path))
			throw new Error(`there is no database ${database.path}; the first start of the service creates it`);
		const socketPath = commandSocketOf(database.path);
		if (await isListening(socketPath)) {
			const options = { baseUrl: "http://localhost", httpVersion: "1.1", nodeOptions: { socketPath } } as const;
			return { transport: createConnectTransport(options), by: { socketPath } };
		}
	}
	const log = createLogger("info", { write: (line) => process.stderr.write(line) });
	const parts = await makeParts(config, { log, opened });
	return { transport: inProcessTransport(parts.commandMethods, COMMAND), by: { parts } };
}

/** Calls an RPC with what the command line says, and prints the answer. */
export async function runCall<Answer extends DescMessage>(
	config: Config,
	method: DescMethodUnary<DescMessage, Answer>,
	call: Call<Answer>,
	operands: readonly string[],
	options: Values,
): Promise<void> {
	const request = requestOf(method.input, call, operands, options);
	const answer = await reachService(config, async ({ transport }) => {
		const { message } = await transport.unary(method, undefined, undefined, undefined, request);
		return message;
	});
	const lines = call.shown?.(answer, operands, options) ?? tableOf(rowsOf(method.output, answer));
	if (call.note !== undefined) process.stderr.write(`${call.note(answer, operands)}\n`);
	for (const line of [lines].flat()) print(line);
}

/** Fields of requests whose operand or option has another name. */
const FIELDS: ReadonlyMap<string, string> = new Map([
	["TEAM", "owner"],
	["scope", "scopes"],
	["expires", "expires_at"],
	["status", "state"],
]);
/** Fields of requests that have an operand or an option, so that there is no setting for them. */
const NO_SETTINGS: ReadonlySet<string> = new Set(["name", "owner", "filter", "update_mask"]);

/**
 * Returns the request that a command line means. Operands and options are the fields with their names. A setting without
 * a value gets its default.
 */
function requestOf(input: DescMessage, call: Call<never>, operands: readonly string[], options: Values): Message {
	const { operands: names = [], needs = [], request } = call;
	if (needs.some((name) => options[name] === undefined))
		throw new UsageError(`Give ${needs.map((name) => `--${name}`).join(" and ")}`);
	const fields = new Map(input.fields.map((field) => [field.name, field]));
	const body: Record<string, JsonValue> = {};
	const changed = new Set<string>();
	const filter =
		options.filter === undefined ? undefined : toJson(ConversationFilterSchema, filterOption(options.filter));
	const ofFields = names.filter((name) => name !== SETTINGS);
	for (const [index, name] of ofFields.entries()) body[FIELDS.get(name) ?? name.toLowerCase()] = operands[index] ?? "";
	for (const [name, text] of Object.entries(options)) {
		const field = fields.get(FIELDS.get(name) ?? name);
		if (field !== undefined && name !== "filter" && typeof text === "string")
			body[field.name] = optionValue(field, name, text);
	}
	if (filter !== undefined && fields.has("filter")) {
		body.filter = filter;
		changed.add("filter");
	}
	for (const setting of operands.slice(ofFields.length)) {
		const [, name = "", text = ""] = /^(\w+)=(.*)$/s.exec(setting) ?? [];
		const field = NO_SETTINGS.has(name) ? undefined : fields.get(name);
		if (field === undefined) {
			const known = [...fields.keys()].filter((one) => !NO_SETTINGS.has(one));
			throw new UsageError(`Give settings such as amount=200. There are ${known.join(", ")}`);
		}
		if (changed.has(name)) throw new UsageError(`${name} is given twice`);
		changed.add(name);
		if (text !== "") body[name] = jsonOf(field, text);
	}
	if (fields.has("update_mask")) {
		if (changed.size === 0) throw new UsageError("Give a setting, such as amount=200, or --filter");
		body.update_mask = [...changed].map((name) => fields.get(name)?.jsonName).join(",");
	}
	const json = JSON.stringify({ ...body, ...request?.(options, filter) });
	return readRequest(input, [], { params: {}, search: "", body: Buffer.from(json) });
}

function optionValue(field: DescField, name: string, text: string): JsonValue {
	if (field.message === TimestampSchema) return expiryOption(text).toISOString();
	if (field.scalar === ScalarType.INT64) return sequenceOption(name, text).toString();
	if (field.enum !== undefined && !planEnum(field.enum).byName.has(text)) {
		const words = new Intl.ListFormat("en-GB", { type: "disjunction" }).format(planEnum(field.enum).byName.keys());
		throw new UsageError(`--${name} must be ${words}`);
	}
	return jsonOf(field, text);
}

function jsonOf(field: DescField, text: string): JsonValue {
	if (field.fieldKind === "list") return text === "" ? [] : text.split(field.name === "scopes" ? "+" : ",");
	const isSwitch = field.scalar === ScalarType.BOOL && (text === "true" || text === "false");
	return isSwitch ? text === "true" : text;
}

/** Returns a row for each field of an answer that is set or cannot be unset, and of a message in it. */
function rowsOf({ fields }: DescMessage, answer: Message): (readonly unknown[])[] {
	return fields.flatMap((field) => {
		const { message, enum: words } = field;
		const name = field.name.replaceAll("_", " ");
		const value: unknown = Reflect.get(answer, field.localName);
		if (value === undefined) return [];
		if (words !== undefined) return [[name, planEnum(words).byNumber.get(Number(value))]];
		if (message === undefined || message === TimestampSchema) return [[name, value]];
		const texts = [value].flat().filter((one) => isMessage(one));
		const isPart = field.fieldKind === "message" && message !== ConversationFilterSchema;
		return texts.flatMap((one) => (isPart ? rowsOf(message, one) : [[name, toJsonString(message, one)]]));
	});
}

/** Returns the filter that `--filter` names by the parameters of lists, such as `tag=team:a&has_error=false`. */
export function filterOption(search: string): ConversationFilter {
	const parameters = parametersOf(ConversationFilterSchema, "", false);
	return readRequest(ConversationFilterSchema, parameters, { params: {}, search });
}
