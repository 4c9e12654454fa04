import { expect, test } from "vitest";
import { ServiceError } from "../../src/errors.ts";
import { brokenRules, createLogger, type Logger, type LogLevel } from "../../src/telemetry/log.ts";

/** Returns the parsed lines that an action logs, without the fields that differ from run to run. */
function logged(action: (log: Logger) => void, level: LogLevel = "info"): unknown[] {
	const lines: unknown[] = [];
	action(
		createLogger(level, {
			write: (line) => {
				const { time, pid, hostname, ...rest } = JSON.parse(line);
				expect(time).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
				expect([typeof pid, typeof hostname]).toEqual(["number", "string"]);
				lines.push(rest);
			},
		}),
	);
	return lines;
}

test("the service logs its start, its listeners and its stop", () => {
	const lines = logged((log) => {
		log.emit("starting", { configuration: { LOG_LEVEL: "info" } });
		log.emit("listening", { listener: "http", address: "127.0.0.1:8080" });
		log.emit("stopping", { signal: "SIGTERM" });
		log.emit("stopped");
	});
	expect(lines).toEqual([
		{ level: "info", event: "starting", configuration: { LOG_LEVEL: "info" }, msg: "The service is starting" },
		{ level: "info", event: "listening", listener: "http", address: "127.0.0.1:8080", msg: "Listening" },
		{ level: "info", event: "stopping", signal: "SIGTERM", msg: "The service is stopping" },
		{ level: "info", event: "stopped", msg: "The service has stopped" },
	]);
});

const request = { transport: "grpc", operation: "/package.Service/Method" } as const;

test("a refusal is logged with the number of violations of each rule and their places, but without values", () => {
	const violations = [
		{ path: ["agent", "tools", 0], type: "missing", message: "secret-message" },
		{ path: ["title"], type: "string_type", message: "", input: "secret-input" },
		{ path: ["tags", "A b"], type: "missing", message: "", context: { expected: "secret-context" } },
		{ path: [], type: "missing", message: "" },
	];
	const error = new ServiceError("invalid_record", "secret-text", { violations });
	expect(logged((log) => log.requestFailed({ ...request, caller: "sender" }, error))).toEqual([
		{
			level: "warn",
			event: "request_refused",
			transport: "grpc",
			operation: "/package.Service/Method",
			caller: "sender",
			kind: "invalid_record",
			reasons: { missing: 3, string_type: 1 },
			locs: ["body.agent.tools[0]", "body.title", 'body.tags["A b"]', "body"],
			msg: "Refused a request",
		},
	]);
});

test("a violation in the path of the URL is logged with a place in the path, not in the body", () => {
	const violations = [{ part: "path", path: ["conversation_id"], type: "uuid_parsing", message: "" } as const];
	const error = new ServiceError("invalid_record", "", { violations });
	expect(logged((log) => log.requestFailed(request, error))).toMatchObject([{ locs: ["path.conversation_id"] }]);
});

test("a refusal is logged with the ids of the request and of its trace", () => {
	const ids = { requestId: "mine", traceId: "0af7651916cd43dd8448eb211c80319c" };
	const lines = logged((log) => log.requestFailed({ ...request, ...ids }, new ServiceError("not_found", "why")));
	expect(lines).toEqual([
		{
			level: "warn",
			event: "request_refused",
			...request,
			...ids,
			kind: "not_found",
			detail: "why",
			msg: "Refused a request",
		},
	]);
});

test("a refusal of a request without a known caller has the address of its client", () => {
	const error = new ServiceError("unauthenticated", "why");
	const peer = "192.0.2.7:51234";
	expect(logged((log) => log.requestFailed({ ...request, peer }, error))[0]).toHaveProperty("peer", peer);
	const known = { ...request, peer, caller: "sender" };
	expect(logged((log) => log.requestFailed(known, error))[0]).not.toHaveProperty("peer");
});

test("at the level debug each request has a line when it has ended", () => {
	const fields = { status: 200, seconds: 0.25, bytes: 7 };
	const ended = { transport: request.transport, path: request.operation, failure: undefined, ...fields };
	const action = (log: Logger) => log.requestEnded(() => ({ ...request, requestId: "a", caller: "sender" }), ended);
	expect(logged(action, "debug")).toEqual([
		{
			level: "debug",
			event: "request_ended",
			...request,
			requestId: "a",
			caller: "sender",
			...fields,
			msg: "A request has ended",
		},
	]);
	expect(logged(action)).toEqual([]);
});

test("the places and the operation of a logged refusal are limited in number and length", () => {
	const violations = Array.from({ length: 1000 }, () => ({ path: ["x".repeat(9999)], type: "missing", message: "" }));
	const error = new ServiceError("invalid_record", "", { violations });
	const [line] = logged((log) => log.requestFailed({ ...request, operation: `GET /${"y".repeat(9999)}` }, error));
	expect(line).toMatchObject({ reasons: { missing: 1000 }, locs: Array(10).fill(`body.${"x".repeat(155)}…`) });
	expect(line).toMatchObject({ operation: `GET /${"y".repeat(155)}…` });
});

test("a refusal is logged with the conversation id of the error, else of the request, if it can be a UUID", () => {
	const [inError, inRequest] = ["0190d6a0-0000-7000-8000-00000000000a", "0190D6A000007000800000000000000B"];
	const idOf = (conversationId: string | undefined, errorId?: string) => {
		const error = new ServiceError("not_found", "", { conversationId: errorId });
		const [line] = logged((log) => log.requestFailed({ ...request, conversationId }, error));
		return line;
	};
	expect(idOf(inRequest, inError)).toHaveProperty("conversationId", inError);
	expect(idOf(inRequest)).toHaveProperty("conversationId", inRequest);
	for (const none of [undefined, "", "a-secret-in-place-of-an-id"])
		expect(idOf(none)).not.toHaveProperty("conversationId");
});

test("an internal failure is logged as an error with its type and stack, but without its message", () => {
	const error = new ServiceError("internal", "The record failed", { cause: new RangeError("canary") });
	const stack = expect.stringMatching(/^at \S*test\/telemetry\/log\.test\.ts:\d+:\d+ at /);
	const line = { level: "error", event: "request_failed", ...request, msg: "A request failed" };
	const lines = logged((log) => {
		log.requestFailed(request, error);
		log.requestFailed(request, new RangeError("canary"));
	});
	expect(lines).toEqual([
		{ ...line, kind: "internal", error: { type: "RangeError", stack } },
		{ ...line, error: { type: "RangeError", stack } },
	]);
});

const stored = { conversationId: "0190d6a0-0000-7000-8000-00000000000a", sequence: 7n };

test.each([
	["store_failed", {}, { level: "error", msg: "The store failed" }],
	["intake_failed", {}, { level: "error", msg: "The intake failed" }],
	["record_unreadable", stored, { level: "error", ...stored, sequence: "7", msg: "A stored record cannot be read" }],
	["event_unreadable", stored, { level: "error", ...stored, sequence: "7", msg: "A stored event cannot be read" }],
	["export_failed", { signal: "traces" }, { level: "warn", signal: "traces", msg: "Metrics or traces cannot be sent" }],
] as const)("%s is logged with the message and the cause of its error", (event, fields, line) => {
	const cause = Object.assign(new Error("database or disk is full"), { code: "ERR_SQLITE_ERROR" });
	const error = new ServiceError("unavailable", "The store cannot write", { cause });
	const stack = expect.stringMatching(/^at \S*test\/telemetry\/log\.test\.ts:\d+:\d+/);
	expect(logged((log) => log.emit(event, fields, error))).toEqual([
		{
			...{ event, ...line },
			error: {
				...{ type: "ServiceError", message: error.message, stack },
				cause: { type: "Error", code: "ERR_SQLITE_ERROR", message: cause.message, stack },
			},
		},
	]);
});

test("an unexpected error is logged with its stack but not its message, which may quote a secret", () => {
	const quoting = new SyntaxError("Unexpected token in canary\n    at canary (file:///canary.ts:1:1)\ncanary");
	const wrapping = new Error("canary", { cause: quoting });
	const renamed = new TypeError("canary-first");
	renamed.message = "changed";
	const lines = logged((log) => {
		log.emit("unexpected_error", { where: "webhook" }, wrapping);
		log.emit("unexpected_error", { where: "webhook" }, renamed);
		log.emit("unexpected_error", { where: "webhook" }, "canary");
	});
	expect(JSON.stringify(lines)).not.toContain("canary");
	const stack = expect.stringMatching(/^at \S*test\/telemetry\/log\.test\.ts:\d+:\d+ at /);
	const common = { level: "error", event: "unexpected_error", where: "webhook", msg: "An unexpected error" };
	expect(lines).toEqual([
		{ ...common, error: { type: "Error", stack, cause: { type: "SyntaxError", stack } } },
		{ ...common, error: { type: "TypeError", stack } },
		{ ...common, error: { type: "string" } },
	]);
});

test("background work that fails because the store is unavailable is not logged again, any other failure is", () => {
	const away = new ServiceError("unavailable", "the store failed");
	const lines = logged((log) => {
		log.emit("store_failed", {}, away);
		log.workFailed("retention", away);
		log.workFailed("retention", new ServiceError("internal", "the store failed while processing this request"));
		log.workFailed("settle", new TypeError("canary"));
	});
	expect(lines).toMatchObject([
		{ event: "store_failed" },
		{ event: "unexpected_error", where: "retention" },
		{ event: "unexpected_error", where: "settle" },
	]);
});

test("lines below the log level are not written", () => {
	const all = (log: Logger) => {
		log.emit("stopped");
		log.requestFailed(request, new ServiceError("not_found", ""));
		log.emit("store_failed", {}, new Error(""));
	};
	expect(logged(all, "info")).toHaveLength(3);
	expect(logged(all, "warn")).toHaveLength(2);
	expect(logged(all, "error")).toHaveLength(1);
	expect(logged(all, "silent")).toEqual([]);
});

test("of events that repeat, ten lines of each kind are written, and the others are counted before the stop", () => {
	const id = "0190d6a0-0000-7000-8000-00000000000a";
	const error = new Error("the disk is full");
	const violations = [{ path: ["title"], type: "missing", message: "" }];
	const lines = logged((log) => {
		for (let round = 0; round < 12; round++) {
			log.requestFailed({ ...request, caller: "one" }, new ServiceError("not_found", ""));
			if (round < 11) log.requestFailed({ ...request, caller: "two" }, new ServiceError("not_found", ""));
			log.requestFailed(request, new ServiceError("unauthenticated", ""));
			log.requestFailed({ ...request, caller: "one" }, new RangeError("canary"));
			log.emit("connection_failed", { listener: "http", code: "HPE_X", peer: `192.0.2.${round}:1` });
			log.emit("store_failed", {}, error);
			log.emit("intake_failed", {}, error);
			log.emit("record_unreadable", { conversationId: id, sequence: BigInt(round) }, error);
			log.emit("event_unreadable", { conversationId: id, sequence: BigInt(round) }, error);
			log.emit("event_values_refused", { conversationId: id, ...brokenRules(violations, "record") });
		}
		log.sumUp();
		log.emit("stopped");
	});
	const common = { level: "warn", event: "lines_left_out", msg: "Further lines of the same event were left out" };
	expect(lines.slice(0, 100)).not.toContainEqual(expect.objectContaining(common));
	expect(lines.slice(100)).toEqual([
		{ ...common, of: "request_refused", kind: "not_found", caller: "one", count: 2 },
		{ ...common, of: "request_refused", kind: "not_found", caller: "two", count: 1 },
		{ ...common, of: "request_refused", kind: "unauthenticated", count: 2 },
		{ ...common, of: "request_failed", caller: "one", count: 2 },
		{ ...common, of: "connection_failed", listener: "http", code: "HPE_X", count: 2 },
		{ ...common, of: "store_failed", count: 2 },
		{ ...common, of: "intake_failed", count: 2 },
		{ ...common, of: "record_unreadable", count: 2 },
		{ ...common, of: "event_unreadable", count: 2 },
		{ ...common, of: "event_values_refused", count: 2 },
		{ level: "info", event: "stopped", msg: "The service has stopped" },
	]);
});
