import type { JsonObject } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { deriveJsonSchemas } from "../../scripts/openapi/json-schema.ts";
import { stringifyExactJson } from "../../src/record/json/exact-json.ts";
import { isJsonObject } from "../../src/record/json/json-value.ts";
import type { MessagePlan } from "../../src/record/plan.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { object } from "../support/fixtures.ts";

const format = new RecordFormat();
const described = deriveJsonSchemas(format.plan, "#/$defs/");
/** The schemas without descriptions, and with bounds as doubles. */
const schemas: Record<string, JsonObject> = JSON.parse(stringifyExactJson(described), (name, value: unknown) =>
	(name === "description" && typeof value === "string") || name === "x-enum-descriptions" ? undefined : value,
);

describe("the JSON Schema", () => {
	test("of an object has required, nullable and secret members, bounds and defaults", () => {
		expect(schemas.RemoteWorkspace).toEqual({
			type: "object",
			properties: {
				kind: { type: "string", const: "RemoteWorkspace", pattern: "^(RemoteWorkspace)$" },
				working_dir: { type: "string" },
				host: { type: "string" },
				api_key: { type: ["string", "null"], writeOnly: true },
				read_timeout: { type: "number", format: "double", default: 600 },
				max_connections: {
					type: ["integer", "null"],
					format: "int64",
					minimum: -(2 ** 63),
					maximum: 2 ** 63,
				},
			},
			required: ["kind", "working_dir", "host"],
			additionalProperties: true,
		});
	});

	test("of the record has formats, bounds, defaults and references to other schemas", () => {
		expect(schemas.ConversationInfo).toEqual({
			type: "object",
			properties: expect.objectContaining({
				id: { type: "string", format: "uuid" },
				persistence_dir: { type: ["string", "null"], default: "workspace/conversations" },
				max_iterations: {
					type: "integer",
					format: "int64",
					exclusiveMinimum: 0,
					maximum: 2 ** 63,
					default: 500,
				},
				execution_status: { $ref: "#/$defs/ConversationExecutionStatus", default: "idle" },
				// Its default is an object, which is not shown.
				confirmation_policy: { $ref: "#/$defs/ConfirmationPolicy" },
				security_analyzer: { anyOf: [{ $ref: "#/$defs/SecurityAnalyzer" }, { type: "null" }] },
				agent_state: { type: "object", additionalProperties: true },
				created_at: { type: "string", format: "date-time" },
				parent_conversation_id: { type: ["string", "null"], format: "uuid" },
				sub_conversation_ids: { type: "array", items: { type: "string", format: "uuid" } },
				tags: {
					type: ["object", "null"],
					propertyNames: { pattern: "^[a-z0-9]+$" },
					additionalProperties: { type: "string", maxLength: 256 },
				},
			}),
			required: ["id", "workspace", "agent"],
			additionalProperties: true,
		});
	});

	test("accepts an alias of a member by a pattern and not as a property of its own", () => {
		const { properties, patternProperties } = schemas.HookDefinition ?? {};
		expect(properties).toMatchObject({ async: { type: "boolean" } });
		expect(properties).not.toHaveProperty("async_");
		expect(patternProperties).toEqual({ "^async_$": { type: "boolean" } });
	});

	test("of an enum lists its values", () => {
		const names = ["UNKNOWN", "LOW", "MEDIUM", "HIGH"];
		const varnames = names.map((name) => `SECURITY_RISK_${name}`);
		expect(schemas.SecurityRisk).toEqual({ type: "string", enum: names, "x-enum-varnames": varnames });
	});

	test("of a tuple has a name of its own, while a list of tuples has none", () => {
		const text = { type: "string" };
		expect(schemas.RiskPattern).toEqual({
			type: "array",
			prefixItems: [text, text, text],
			items: false,
			minItems: 3,
			maxItems: 3,
		});
		expect(schemas.PatternSecurityAnalyzer?.properties).toMatchObject({
			high_patterns: { type: "array", items: { $ref: "#/$defs/RiskPattern" } },
		});
		expect(schemas).not.toHaveProperty("RiskPatternList");
	});

	test("of a union of tagged objects has a discriminator", () => {
		expect(schemas.Workspace).toEqual({
			oneOf: [{ $ref: "#/$defs/LocalWorkspace" }, { $ref: "#/$defs/RemoteWorkspace" }],
			discriminator: {
				propertyName: "kind",
				mapping: { LocalWorkspace: "#/$defs/LocalWorkspace", RemoteWorkspace: "#/$defs/RemoteWorkspace" },
			},
		});
	});

	test("of a union with arms that are not objects has no discriminator", () => {
		expect(schemas.ContextSecret).toEqual({
			oneOf: [{ type: "string", writeOnly: true }, { $ref: "#/$defs/StaticSecret" }, { $ref: "#/$defs/LookupSecret" }],
		});
	});

	test("of an open union accepts objects that belong to none of its arms", () => {
		expect(schemas.SkillTrigger).toEqual({
			oneOf: [
				{ $ref: "#/$defs/KeywordTrigger" },
				{ $ref: "#/$defs/TaskTrigger" },
				{ $ref: "#/$defs/PathTrigger" },
				{ type: "array", items: { type: "string" } },
				{ $ref: "#/$defs/OtherSkillTrigger" },
			],
		});
		const { type, properties, additionalProperties } = schemas.OtherSkillTrigger ?? {};
		const tag = { type: "string", pattern: expect.any(String) };
		expect({ type, properties, additionalProperties }).toEqual({
			type: "object",
			properties: { type: tag },
			additionalProperties: true,
		});
	});

	// Generated clients try the arms of a union one after the other, and refuse a value that two arms take.
	test("of a tagged object has a pattern of its tags, and a catch-all one of all other texts", () => {
		const open = Object.entries({
			Condenser: ["LLMSummarizingCondenser", "NoOpCondenser", "PipelineCondenser"],
			Critic: ["AgentFinishedCritic", "PassCritic", "EmptyPatchCritic", "APIBasedCritic"],
			MCPAuth: ["none", "api_key", "bearer", "basic", "header", "oauth2"],
			SkillTrigger: ["keyword", "task", "path"],
		});
		const patternOf = (name: string) => {
			const [tag] = Object.values(object(schemas[name]?.properties));
			return new RegExp(String(object(tag).pattern), "u");
		};
		for (const [union, tags] of open) {
			const others = patternOf(`Other${union}`);
			expect(tags.filter((tag) => others.test(tag))).toEqual([]);
			const near = tags.flatMap((tag) => [`${tag}x`, `x${tag}`, tag.slice(1), tag.slice(0, -1), tag.toUpperCase()]);
			expect(["", "x", "é", ...near].filter((text) => !others.test(text) && !tags.includes(text))).toEqual([]);
			fc.assert(
				fc.property(fc.string({ unit: "grapheme" }), (text) => {
					fc.pre(!tags.includes(text) && !/[\n\r\u2028\u2029]/.test(text));
					expect(others.test(text)).toBe(true);
				}),
			);
		}
		const condenser = patternOf("NoOpCondenser");
		expect(["NoOpCondenser", "NoOpCondenserX", "PipelineCondenser"].map((tag) => condenser.test(tag))).toEqual([
			true,
			false,
			false,
		]);
	});

	test("of enums have names of constants that no other enum has", () => {
		const names = Object.values(schemas).flatMap((schema) => [schema["x-enum-varnames"] ?? []].flat());
		expect(names.length).toBeGreaterThan(10);
		expect(new Set(names).size).toBe(names.length);
	});

	test("of an open union has a named catch-all without `not`, and a discriminator when each known arm has a tag", () => {
		const catchAlls = Object.keys(schemas).filter((name) => name.startsWith("Other"));
		expect(catchAlls.sort()).toEqual([
			"OtherCapabilityOverride",
			"OtherCondenser",
			"OtherCritic",
			"OtherMCPAuth",
			"OtherSkillTrigger",
		]);
		expect(catchAlls.filter((name) => JSON.stringify(schemas[name]).includes('"not"'))).toEqual([]);
		const arms = Object.values(schemas).flatMap(({ anyOf, oneOf }) => [anyOf ?? [], oneOf ?? []].flat());
		expect(arms.filter((arm) => JSON.stringify(arm).includes('"not"'))).toEqual([]);
		expect(schemas.Condenser?.discriminator).toEqual({
			propertyName: "kind",
			mapping: Object.fromEntries(
				["LLMSummarizingCondenser", "NoOpCondenser", "PipelineCondenser"].map((kind) => [kind, `#/$defs/${kind}`]),
			),
		});
		expect(["Condenser", "Critic", "MCPAuth"].map((name) => schemas[name]?.discriminator !== undefined)).toEqual([
			true,
			true,
			// It may also be a string.
			false,
		]);
	});
});

test("every secret is marked as write-only", () => {
	const marked = Object.entries(schemas).flatMap(([name, { properties, oneOf, anyOf, writeOnly }]) => [
		...Object.entries(isJsonObject(properties) ? properties : {}).flatMap(([member, schema]) =>
			isJsonObject(schema) && schema.writeOnly === true ? [`${name}.${member}`] : [],
		),
		...(writeOnly === true ? [name] : []),
		...([oneOf ?? [], anyOf ?? []].flat().some((arm) => isJsonObject(arm) && arm.writeOnly === true) ? [name] : []),
	]);
	expect(marked.sort()).toEqual([
		"ACPAgent.acp_resume_session_id",
		"APIBasedCritic.api_key",
		"ContextSecret",
		"LLM.api_key",
		"LLM.aws_access_key_id",
		"LLM.aws_secret_access_key",
		"LLM.aws_session_token",
		"LLM.extra_headers",
		"LookupSecret.headers",
		"MCPApiKeyAuthCredential.value",
		"MCPAuth",
		"MCPBasicAuthCredential.password",
		"MCPBearerAuthCredential.value",
		"MCPHeaderAuthCredential.headers",
		"MCPOAuthAuthCredential.state",
		"MCPOAuthAuthentication.client_secret",
		"MCPServer.auth",
		"MCPServer.env",
		"MCPServer.headers",
		"OtherMCPAuth",
		"RemoteWorkspace.api_key",
		"StaticSecret.value",
		"VendorRiskAnalyzer.api_key",
	]);
	expect(schemas.MCPServer?.properties).toMatchObject({
		env: { type: ["object", "null"], additionalProperties: { type: "string" }, writeOnly: true },
	});
});

describe("aliases of members and kinds in the JSON Schema", () => {
	test("are listed", () => {
		expect(schemas.LLM?.patternProperties).toMatchObject({ "^openrouter_site_url$": { type: "string" } });
		expect(schemas.VendorRiskAnalyzer?.properties).toMatchObject({
			kind: { type: "string", enum: ["VendorRiskAnalyzer", "GraySwanAnalyzer"] },
		});
		expect(schemas.SecurityAnalyzer?.discriminator).toMatchObject({
			mapping: {
				VendorRiskAnalyzer: "#/$defs/VendorRiskAnalyzer",
				GraySwanAnalyzer: "#/$defs/VendorRiskAnalyzer",
			},
		});
	});
});

describe("descriptions in the JSON Schema", () => {
	test("of messages and fields are their comments in the .proto files", () => {
		expect(described.RemoteWorkspace).toMatchObject({
			description: "A workspace on another host.",
			properties: {
				host: { description: "URL of the host." },
				api_key: { description: "Key that the host asks for. Unset (JSON null): the host is called without one." },
			},
		});
	});

	test("of members with an alias name it", () => {
		expect(described.HookDefinition?.properties).toMatchObject({
			async: { description: expect.stringMatching(/\. Also accepted as async_\.$/) },
		});
	});

	test("of an enum's values are in the order of the values", () => {
		const { enum: names, "x-enum-descriptions": descriptions } = described.SecurityRisk ?? {};
		expect(names).toEqual(["UNKNOWN", "LOW", "MEDIUM", "HIGH"]);
		expect(descriptions).toEqual(Array.isArray(names) ? names.map(() => expect.stringMatching(/./)) : []);
	});

	test("exist for every message and every field", () => {
		const missing = Object.entries(described).flatMap(([name, { description, properties }]) => {
			const members = Object.entries(isJsonObject(properties) ? properties : {});
			const bare = members.filter(([, schema]) => !isJsonObject(schema) || schema.description === undefined);
			return [...(description === undefined ? [name] : []), ...bare.map(([member]) => `${name}.${member}`)];
		});
		// The discriminator of a union's arm is not a field.
		expect(missing.filter((name) => !/\.(kind|strategy|type)$/.test(name))).toEqual([]);
	});
});

test("the bounds of integers are exactly those of 64 bits", () => {
	expect(stringifyExactJson(described.RemoteWorkspace?.properties)).toContain(
		'"minimum":-9223372036854775808,"maximum":9223372036854775807',
	);
});

test("deriving JSON Schemas fails for two messages with the same name", () => {
	const { plan } = format;
	const [id] = plan.fields;
	if (id === undefined) throw new TypeError("a record has members");
	const other: MessagePlan = { ...plan, desc: { ...plan.desc, typeName: "other.v1.ConversationInfo" } };
	const fields = [{ ...id, value: { type: "message" as const, message: other } }];
	expect(() => deriveJsonSchemas({ ...plan, fields }, "")).toThrow(
		new Error("conversations.v1.ConversationInfo and other.v1.ConversationInfo have the same name"),
	);
});
