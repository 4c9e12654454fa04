import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { stringifyExactJson } from "../../src/record/json/exact-json.ts";
import { type ExactJson, isJsonObject } from "../../src/record/json/json-value.ts";

/** A body that a real agent server sent, or that its own models wrote. */
export interface CorpusBody {
	readonly name: string;
	/** The bytes as received. */
	readonly bytes: Buffer;
	readonly json: JsonObject;
}

/** A body and the response that it must get. */
export interface Case {
	readonly name: string;
	/** JSON body, with its numbers as doubles. Absent when the body is not JSON. */
	readonly body?: JsonValue;
	/** Text to send when the body is not JSON. */
	readonly raw?: string;
	/** The text to send in either case. */
	readonly text: string;
	/** Headers that override the defaults; null removes one. */
	readonly headers?: Readonly<Record<string, string | null>>;
	/** Correct HTTP statuses. */
	readonly status: readonly number[];
	/** Locations that must be among the violations. */
	readonly loc?: readonly (readonly (string | number)[])[];
	/** Correct types for each of `loc`. */
	readonly types?: readonly (readonly string[])[];
}

const folder = new URL("../fixtures/", import.meta.url);

/** Returns all real bodies, sorted by name. */
export function corpus(): CorpusBody[] {
	const corpusFolder = new URL("corpus/", folder);
	return readdirSync(corpusFolder)
		.sort()
		.map((file) => {
			const bytes = readFileSync(new URL(file, corpusFolder));
			return { name: file.replace(/\.json$/, ""), bytes, json: object(JSON.parse(bytes.toString())) };
		});
}

/** Returns a real body by name. */
export function corpusBody(name: string): CorpusBody {
	const bytes = readFileSync(new URL(`corpus/${name}.json`, folder));
	return { name, bytes, json: object(JSON.parse(bytes.toString())) };
}

/** A post of a real agent server to one of its two webhooks. */
export interface CapturedPost {
	readonly webhook: "conversations" | "events";
	/** The text of the body. */
	readonly body: string;
}

/** All posts of a real agent server about one conversation, in order of arrival. */
export interface CapturedSequence {
	readonly name: string;
	readonly conversationId: string;
	readonly posts: readonly CapturedPost[];
}

/** Returns all captured sequences of posts, sorted by name. */
export function capturedSequences(): CapturedSequence[] {
	const sequenceFolder = new URL("sequences/", folder);
	return readdirSync(sequenceFolder)
		.sort()
		.map((file) => {
			const posts = readFileSync(new URL(file, sequenceFolder), "utf8").trim().split("\n").map(capturedPost);
			const record = posts.find(({ webhook }) => webhook === "conversations");
			const id = record === undefined ? randomUUID() : String(object(JSON.parse(record.body)).id);
			return { name: file.replace(/--\w+\.jsonl$/, ""), conversationId: id, posts };
		});
}

function capturedPost(line: string): CapturedPost {
	const { webhook }: { webhook: CapturedPost["webhook"] } = JSON.parse(line);
	// The body is the last member. Parsing it would lose digits of its numbers.
	return { webhook, body: line.slice(line.indexOf('"body":') + '"body":'.length, -1) };
}

/** A batch of events as a real agent server sent it. */
export interface CapturedBatch {
	readonly name: string;
	readonly text: string;
	readonly events: readonly JsonObject[];
}

/** Returns all captured batches of events, sorted by name. */
export function capturedBatches(): CapturedBatch[] {
	const eventFolder = new URL("events/", folder);
	return readdirSync(eventFolder)
		.sort()
		.map((file) => {
			const text = readFileSync(new URL(file, eventFolder), "utf8");
			const batch: unknown[] = JSON.parse(text);
			return { name: file.replace(/\.json$/, ""), text, events: batch.map(object) };
		});
}

/** Returns the bodies with their correct responses. */
export function cases(): Case[] {
	const lines = readFileSync(new URL("cases.jsonl", folder), "utf8").trim().split("\n");
	return lines.map((line) => {
		const given: Omit<Case, "text"> = JSON.parse(line);
		return { ...given, text: given.raw ?? exactBody(line) };
	});
}

/**
 * Returns the text of the body in a case's line. Integers of 16 digits and more, which a double may not hold, are kept.
 */
function exactBody(line: string): string {
	const marked = line.replaceAll(/"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g, (token) =>
		/^-?\d{16,}$/.test(token) ? `"exactly ${token}"` : token,
	);
	return JSON.stringify(JSON.parse(marked).body).replaceAll(/"exactly (-?\d+)"/g, "$1");
}

/** Returns a record with the required members, overridden by `members`. */
export function record(members: JsonObject = {}): JsonObject {
	return {
		id: randomUUID(),
		workspace: { kind: "LocalWorkspace", working_dir: "/workspace" },
		agent: { kind: "ACPAgent", acp_command: ["acp"] },
		...members,
	};
}

/**
 * Returns a JSON value as an object.
 *
 * @throws TypeError when it is something else
 */
export function object(json: unknown): JsonObject {
	if (!isObject(json)) throw new TypeError("not a JSON object");
	return json;
}

function isObject(json: unknown): json is JsonObject {
	return isJsonObject(json);
}

/** Returns the JSON text of a value with sorted members, so that equal values have equal texts. */
export function canonical(json: ExactJson | undefined): string {
	if (Array.isArray(json)) return `[${json.map(canonical).join(",")}]`;
	if (!isJsonObject(json)) return stringifyExactJson(json ?? null);
	const members = Object.keys(json).sort();
	return `{${members.map((name) => `${JSON.stringify(name)}:${canonical(json[name])}`).join(",")}}`;
}
