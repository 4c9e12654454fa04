import { createSecretKey } from "node:crypto";
import {
	clone,
	create,
	createFileRegistry,
	type DescFile,
	type DescMessage,
	fromBinary,
	type JsonObject,
	toBinary,
} from "@bufbuild/protobuf";
import { type FileDescriptorProto, FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { toValue } from "../../src/record/json/json-form.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { RecordVault } from "../../src/record/secrets/record-vault.ts";
import { REDACTED } from "../../src/userinfo.ts";
import { object, record } from "../support/fixtures.ts";
import { summaryOf, violationsOf } from "../support/refusal.ts";

/** Returns the record's descriptor without some fields, as in an older release. `lacking` has field names by message. */
function olderSchema(lacking: Readonly<Record<string, readonly string[]>>): DescMessage {
	const files = new Map<string, FileDescriptorProto>();
	const visit = (file: DescFile): void => {
		for (const dependency of file.dependencies) visit(dependency);
		const proto = clone(FileDescriptorProtoSchema, file.proto);
		for (const message of proto.messageType)
			message.field = message.field.filter(({ name }) => !(lacking[message.name] ?? []).includes(name));
		files.set(file.proto.name, proto);
	};
	visit(ConversationInfoSchema.file);
	const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: [...files.values()] }));
	const desc = registry.getMessage(ConversationInfoSchema.typeName);
	if (desc === undefined) throw new Error("the schema has no record");
	return desc;
}

const older = new RecordFormat(
	olderSchema({
		LLM: ["seed", "api_key", "fallback_strategy", "base_url"],
		ConversationInfo: ["title", "sub_conversation_ids"],
		Agent: ["tools", "mcp_config"],
	}),
);
const current = new RecordFormat();
const key = createSecretKey(Buffer.alloc(32, 1));

const members = {
	title: "a title",
	sub_conversation_ids: ["0190d6a0-0000-7000-8000-000000000001"],
	vendor: { kept: [1] },
	agent: {
		kind: "Agent",
		tools: [{ name: "t", vendor: "below" }],
		llm: { model: "m", seed: 9007199254740991, api_key: "sk-secret", fallback_strategy: { fallback_llms: ["b"] } },
		mcp_config: { s: { env: { TOKEN: "in env" } } },
	},
};

function written(vaultFormat: RecordFormat, json: JsonObject, keys = [key]) {
	return new RecordVault(vaultFormat, keys).protect(vaultFormat.fromJson(json));
}

test("members of a message of which the schema names none are kept in their order", () => {
	const format = new RecordFormat(olderSchema({ ConversationStats: ["usage_to_metrics"] }));
	const json = record({ stats: { usage_to_metrics: {}, other: [1] }, vendor: true });
	const message = format.fromJson(json);
	expect(Object.keys(message.unnamedMembers)).toEqual(["/stats/usage_to_metrics", "/stats/other", "/vendor"]);
	expect(format.toJson(message)).toMatchObject(json);
});

describe("a record that was written with an older schema", () => {
	const json = record(members);

	test("is opened with unnamed members, and has the same JSON", () => {
		const { bytes } = written(older, json);
		const vault = new RecordVault(current, [key]);
		const opened = vault.open(bytes, "plaintext");
		expect(Object.keys(opened.unnamedMembers)).toEqual(
			expect.arrayContaining(["/title", "/agent/llm/seed", "/agent/tools", "/vendor"]),
		);
		expect(current.fromJson(current.toJson(opened))).toEqual(current.fromJson(json));
		for (const name of ["title", "sub_conversation_ids", "agent", "tags"])
			expect(current.membersToJson(vault.openMembers(bytes, [name], "plaintext"), [name])[name]).toEqual(
				current.toJson(opened)[name],
			);
	});

	test("is read without secrets, whether the older or only the current schema marks them", () => {
		const { bytes, ...versions } = written(older, json, []);
		expect(Buffer.from(bytes).includes("sk-secret")).toBe(false);
		const vault = new RecordVault(current, []);
		const encoded = vault.openEncoded(bytes, versions, "redacted");
		const expected = JSON.parse(JSON.stringify(json).replace("sk-secret", REDACTED).replace("in env", REDACTED));
		expect(current.toJson(fromBinary(ConversationInfoSchema, encoded))).toMatchObject(expected);
		expect(Buffer.from(encoded).includes("in env")).toBe(false);
	});

	test("is refused over gRPC with a value that its field does not accept", () => {
		const broken = { ...json, title: 7, agent: { kind: "Agent", llm: { model: "m", seed: "many" } } };
		const opened = new RecordVault(current, [key]).open(written(older, broken).bytes, "plaintext");
		const back = current.toJson(opened);
		expect([back.title, object(object(back.agent).llm).seed]).toEqual([7, "many"]);
		expect(summaryOf(violationsOf(() => current.fromMessage(opened)))).toEqual([
			"title string_type",
			"agent.llm.seed int_parsing",
		]);
	});

	test("is accepted over gRPC with its members in their fields", () => {
		const message = older.fromJson(json);
		expect(current.fromMessage(message)).toEqual(current.fromJson(json));
	});

	test("is refused over gRPC if an unnamed member has the name of a field that is set", () => {
		const message = current.fromJson(json);
		message.unnamedMembers["/title"] = toValue("another");
		expect(summaryOf(violationsOf(() => current.fromMessage(message)))).toEqual(["unnamed_members./title value_error"]);
	});
});

describe("reading an older record without decoding it", () => {
	const vault = new RecordVault(current, []);
	const withoutTitle = new RecordFormat(olderSchema({ ConversationInfo: ["title"] }));

	test("is not prevented by a new field that is not a secret (same redaction version)", () => {
		const { redactionVersion } = written(withoutTitle, record(), []);
		expect(redactionVersion).toBe(written(current, record(), []).redactionVersion);
	});

	test("is prevented by a new secret field (other redaction version)", () => {
		const withoutKey = new RecordFormat(olderSchema({ LLM: ["api_key"] }));
		const { bytes, ...versions } = written(withoutKey, record(), []);
		expect(versions.redactionVersion).not.toBe(written(current, record(), []).redactionVersion);
		const opened = vault.openEncoded(bytes, versions, "redacted");
		expect(opened).not.toBe(bytes);
		expect([...opened]).toEqual([...toBinary(ConversationInfoSchema, fromBinary(ConversationInfoSchema, bytes))]);
	});
});
