import { describe, expect, test } from "vitest";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { record } from "../../support/fixtures.ts";
import { violationsOf } from "../../support/refusal.ts";

const format = new RecordFormat();

describe("a violation", () => {
	test("has the invalid value if that is small and not a secret", () => {
		const [violation] = violationsOf(() => format.fromJson(record({ max_iterations: "many" })));
		expect(violation).toEqual({
			path: ["max_iterations"],
			type: "int_parsing",
			message: "Input should be a valid integer, unable to parse string as an integer",
			input: "many",
		});
	});

	test("does not have a large value, an object or an array", () => {
		const json = record({ max_iterations: "x".repeat(65), stuck_detection: { a: 1 }, title: ["y"] });
		expect(violationsOf(() => format.fromJson(json)).map((violation) => "input" in violation)).toEqual([
			false,
			false,
			false,
		]);
	});

	test("never has a secret, wherever that is in the record", () => {
		const canary = 7_700_123_456.5;
		const text = "canary-5d1c";
		const json = {
			...record({
				workspace: { kind: "RemoteWorkspace", working_dir: "/", host: "h", api_key: canary },
				security_analyzer: { kind: "VendorRiskAnalyzer", api_key: canary, history_limit: "x" },
				secret_registry: {
					secret_sources: {
						A: { kind: "StaticSecret", value: canary },
						B: { kind: "LookupSecret", url: 1, headers: { "X-Key": canary, Other: canary } },
						C: text,
					},
				},
				agent_state: { api_token: JSON.parse("1e400"), list: [JSON.parse(`"\\ud83d${text}"`)] },
				password: JSON.parse(`"${text}\\ud83d"`),
			}),
			agent: {
				kind: "ACPAgent",
				acp_command: [],
				acp_resume_session_id: canary,
				llm: { api_key: canary, aws_session_token: [text], extra_headers: { Authorization: canary } },
				mcp_config: {
					s: { env: { TOKEN: canary }, headers: { H: canary }, auth: { strategy: "bearer", value: canary } },
				},
				agent_context: { secrets: { GITHUB: canary } },
			},
		};
		const violations = violationsOf(() => format.fromJson(json));
		expect(violations).toHaveLength(19);
		const shown = JSON.stringify(violations);
		expect(shown).not.toContain(String(canary));
		expect(shown).not.toContain(text);
	});

	test.each(["https://user:CANARY@host/", "https://CANARY@host/", "https%3A%2F%2Fuser%3ACANARY%40host"])(
		"repeats %s without its password",
		(url) => {
			const violations = violationsOf(() =>
				format.fromJson({
					...record({
						execution_status: url,
						updated_at: url,
						confirmation_policy: { kind: "ConfirmRisky", threshold: url },
						max_iterations: url,
						security_analyzer: { kind: url },
						hook_config: { [url]: 1 },
					}),
				}),
			);
			expect(violations.length).toBe(6);
			expect(JSON.stringify(violations)).not.toContain("CANARY");
			expect(violations.find(({ path }) => path[0] === "execution_status")?.input).toBe(
				url.includes("user")
					? "https://**********@host".concat(url.endsWith("/") ? "/" : "")
					: "https://**********@host/",
			);
		},
	);
});
