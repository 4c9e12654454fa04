import { Code, ConnectError } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { type ErrorKind, formatPath, ServiceError } from "../../src/errors.ts";
import { toConnectError } from "../../src/rpc/rpc-method.ts";
import { badRequest } from "../support/clients.ts";

describe("formatPath", () => {
	test.each([
		[[], "conversation"],
		[["available_models", 0, "model_id"], "conversation.available_models[0].model_id"],
		[["tags", "a-b"], 'conversation.tags["a-b"]'],
		[["blocked_actions", "0"], 'conversation.blocked_actions["0"]'],
		[["agent_state", 'say "x"\n', ""], 'conversation.agent_state["say \\"x\\"\\n"][""]'],
		[["agent", "mcp_config", "名前", "env"], 'conversation.agent.mcp_config["名前"].env'],
	] as const)("writes %j as %s", (path, text) => {
		expect(`conversation${formatPath(path)}`).toBe(text);
	});
});

describe("toConnectError", () => {
	test.each<[ErrorKind, Code]>([
		["invalid_record", Code.InvalidArgument],
		["invalid_argument", Code.InvalidArgument],
		["unauthenticated", Code.Unauthenticated],
		["permission_denied", Code.PermissionDenied],
		["not_found", Code.NotFound],
		["out_of_range", Code.OutOfRange],
		["too_large", Code.ResourceExhausted],
		["unsupported_media_type", Code.InvalidArgument],
		["unavailable", Code.Unavailable],
	])("converts %s to its code and keeps the message", (kind, code) => {
		const error = toConnectError(new ServiceError(kind, "what happened"));
		expect([error.code, error.rawMessage, error.details]).toEqual([code, "what happened", []]);
	});

	test("hides the message of an error that is not a ServiceError", () => {
		const error = toConnectError(new TypeError("a canary"));
		expect([error.code, error.message]).toEqual([Code.Internal, "[internal] internal error"]);
	});

	test("returns a Connect error unchanged", () => {
		const error = new ConnectError("gone", Code.Canceled);
		expect(toConnectError(error)).toBe(error);
	});

	test("lists the violations in a BadRequest, as many as fit into a trailer", () => {
		const violation = (index: number) => ({ path: ["tags", index], type: "missing", message: "Field required" });
		const refused = (count: number) => {
			const violations = Array.from({ length: count }, (_, index) => violation(index));
			return (
				badRequest(toConnectError(new ServiceError("invalid_record", "refused", { violations, field: "conversation" })))
					?.fieldViolations ?? []
			);
		};
		expect(refused(2)).toMatchObject([
			{ field: "conversation.tags[0]", description: "Field required", reason: "missing" },
			{ field: "conversation.tags[1]", description: "Field required", reason: "missing" },
		]);
		const many = refused(10_000);
		expect(many.length).toBeGreaterThan(50);
		expect(
			many.reduce(
				(bytes, { field, description, reason }) => bytes + field.length + description.length + reason.length,
				0,
			),
		).toBeLessThanOrEqual(4096);
	});
});
