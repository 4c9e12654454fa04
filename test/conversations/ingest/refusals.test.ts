import { create, fromBinary, type JsonValue, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { IngestConversationRequestSchema } from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { UpdateParser } from "../../../src/intake/record-intake.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { RecordVault } from "../../../src/record/secrets/record-vault.ts";
import { cases, record } from "../../support/fixtures.ts";
import { Inexpressible, messageOf } from "../../support/message.ts";
import { summaryOf, violationsOf } from "../../support/refusal.ts";

const format = new RecordFormat();
const { plan } = format;
const parser = new UpdateParser(format, new RecordVault(format, []));

/** Returns the places and the types of the violations for which a record is refused. */
function refusalOf(read: () => unknown): readonly string[] | "accepted" {
	try {
		return summaryOf(
			violationsOf(() => {
				read();
				throw new Accepted();
			}),
		);
	} catch (error) {
		if (error instanceof Accepted) return "accepted";
		throw error;
	}
}

class Accepted extends Error {}

function expressed(json: JsonValue): ConversationInfo | undefined {
	try {
		const message = messageOf(plan, json);
		return isReadable(message) ? message : undefined;
	} catch (error) {
		if (error instanceof Inexpressible) return undefined;
		throw error;
	}
}

/** Returns whether a protobuf parser accepts the message. It rejects one that is nested too deeply. */
function isReadable(message: ConversationInfo): boolean {
	try {
		fromBinary(ConversationInfoSchema, toBinary(ConversationInfoSchema, message));
		return true;
	} catch {
		return false;
	}
}

const llm = { model: "m" };
const shared = cases()
	.filter(({ status, body, headers }) => status.includes(422) && body !== undefined && headers === undefined)
	.map(({ name, body = null, status }) => ({ name, body, certain: status.length === 1 }));

/** Invalid records that can also be expressed as messages. Some of them have several violations. */
const more: readonly { readonly name: string; readonly body: JsonValue }[] = [
	{ name: "an empty record", body: {} },
	{ name: "ids that are not UUIDs", body: record({ id: "x", sub_conversation_ids: ["0".repeat(32), "y", "z"] }) },
	{
		name: "a count below zero in a map",
		body: record({ stats: { usage_to_metrics: { "a.b": { token_usages: [{ prompt_tokens: -1 }] } } } }),
	},
	{
		name: "an empty ensemble in an ensemble",
		body: record({
			security_analyzer: {
				kind: "EnsembleSecurityAnalyzer",
				analyzers: [{ kind: "EnsembleSecurityAnalyzer", analyzers: [] }, {}],
			},
		}),
	},
	{
		name: "a short tuple",
		body: record({ security_analyzer: { kind: "PatternSecurityAnalyzer", medium_patterns: [["a", "b", "c"], ["a"]] } }),
	},
	{ name: "an unknown status", body: record({ execution_status: "asleep" }) },
	{ name: "invalid tags", body: record({ tags: { Upper: "x", a: "x".repeat(257), b: "fine" } }) },
	{ name: "a negative integer beyond 2^53", body: record({ max_iterations: -(2 ** 60) }) },
	{ name: "a secret source of no kind", body: record({ secret_registry: { secret_sources: { "with space": {} } } }) },
	{
		name: "two members that exclude each other",
		body: record({ agent: { kind: "Agent", llm, system_prompt: "p", system_prompt_filename: "f" } }),
	},
	{
		name: "free-form JSON that is nested too deeply",
		body: record({ agent_state: { a: JSON.parse(`${"[".repeat(40)}${"]".repeat(40)}`) } }),
	},
	{
		name: "an unnamed member that is nested too deeply",
		body: record({ news: JSON.parse(`${"[".repeat(40)}${"]".repeat(40)}`) }),
	},
	{
		name: "skills and models without their names",
		body: record({
			available_models: [{}, { model_id: "m" }, {}],
			agent: { kind: "Agent", llm, agent_context: { skills: [{}] } },
		}),
	},
];

const table = [...shared, ...more.map((entry) => ({ ...entry, certain: true }))].flatMap(({ name, body, certain }) => {
	const conversation = expressed(body);
	return conversation === undefined ? [] : [{ name, body, conversation, certain }];
});

describe("the webhook and the RPCs refuse a record with the same violations", () => {
	test("for a table of over 50 records, which contains all that are defined here", () => {
		expect(table.length).toBeGreaterThan(50);
		expect(more.filter(({ name }) => !table.some((entry) => entry.name === name))).toEqual([]);
	});

	test.each(table)("$name", ({ body, conversation, certain }) => {
		const byWebhook = refusalOf(() => parser.fromJson(Buffer.from(JSON.stringify(body))));
		if (certain) expect(byWebhook).not.toBe("accepted");
		const bytes = toBinary(IngestConversationRequestSchema, create(IngestConversationRequestSchema, { conversation }));
		expect(refusalOf(() => parser.fromRequest(bytes))).toEqual(byWebhook);
	});
});
