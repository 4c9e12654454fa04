import { expect, test } from "vitest";
import { ServiceError } from "../../src/errors.ts";
import { createLogger, type Log, type LogLevel } from "../../src/telemetry/log.ts";

/** Returns the parsed lines that an action logs, without the fields that differ from run to run. */
function logged(action: (log: Log) => void, level: LogLevel = "info"): unknown[] {
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
		log.starting({ LOG_LEVEL: "info" });
		log.listening("http", "127.0.0.1:8080");
		log.stopping("SIGTERM");
		log.stopped();
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

test("refusals that differ only in their request ids, trace ids and details are summed up", () => {
	const lines = logged((log) => {
		for (const id of ["a", "b", "c"])
			log.requestFailed({ ...request, requestId: id, traceId: id }, new ServiceError("not_found", `why ${id}`));
		log.sumUp();
	});
	expect(lines).toEqual([
		{
			level: "warn",
			event: "request_refused",
			...request,
			requestId: "a",
			traceId: "a",
			kind: "not_found",
			detail: "why a",
			msg: "Refused a request",
		},
		{
			level: "warn",
			event: "requests_refused",
			...request,
			kind: "not_found",
			details: ["why b", "why c"],
			count: 2,
			since: expect.any(String),
			msg: "Refused more requests for the same cause",
		},
	]);
});

test("a failure to send metrics or traces is logged with the signal and the error", () => {
	expect(logged((log) => log.exportFailed("traces", new Error("connect ECONNREFUSED")))).toEqual([
		{
			level: "warn",
			event: "export_failed",
			signal: "traces",
			error: { type: "Error", message: "connect ECONNREFUSED", stack: expect.any(Array) },
			msg: "Metrics or traces cannot be sent",
		},
	]);
});

test("an unreadable record and an unreadable event are logged as different events", () => {
	const stored = { conversationId: "0190d6a0-0000-7000-8000-00000000000a", sequence: 7n, error: new Error("the disk") };
	const lines = logged((log) => {
		log.recordUnreadable(stored);
		log.eventUnreadable(stored);
	});
	const fields = { level: "error", conversationId: stored.conversationId, sequence: "7" };
	const error = { type: "Error", message: "the disk", stack: expect.any(Array) };
	expect(lines).toEqual([
		{ ...fields, event: "record_unreadable", error, msg: "A stored record cannot be read" },
		{ ...fields, event: "event_unreadable", error, msg: "A stored event cannot be read" },
	]);
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
	const stack = expect.arrayContaining([expect.stringMatching(/log\.test\.ts:\d+:\d+/)]);
	expect(logged((log) => log.requestFailed(request, error))).toEqual([
		{
			level: "error",
			event: "request_failed",
			...request,
			kind: "internal",
			error: { type: "RangeError", stack },
			msg: "A request failed",
		},
	]);
	expect(logged((log) => log.requestFailed(request, new RangeError("canary")))).toEqual([
		{
			level: "error",
			event: "request_failed",
			...request,
			error: { type: "RangeError", stack },
			msg: "A request failed",
		},
	]);
});

test("a failure of the store is logged with its message and its cause", () => {
	const cause = Object.assign(new Error("database or disk is full"), { code: "ERR_SQLITE_ERROR" });
	const frame = expect.stringMatching(/log\.test\.ts:\d+:\d+/);
	expect(
		logged((log) => log.storeFailed(new ServiceError("unavailable", "The store cannot write", { cause }))),
	).toEqual([
		{
			level: "error",
			event: "store_failed",
			error: {
				type: "ServiceError",
				message: "The store cannot write",
				stack: expect.arrayContaining([frame]),
				cause: {
					type: "Error",
					code: "ERR_SQLITE_ERROR",
					message: "database or disk is full",
					stack: expect.arrayContaining([frame]),
				},
			},
			msg: "The store failed",
		},
	]);
});

test("a failure of the intake is logged with its cause", () => {
	const cause = new Error("the thread ended with code 3");
	expect(
		logged((log) => log.intakeFailed(new ServiceError("unavailable", "the intake failed", { cause }))),
	).toMatchObject([
		{
			level: "error",
			event: "intake_failed",
			error: { message: "the intake failed", cause: { message: "the thread ended with code 3" } },
		},
	]);
});

test("an unexpected error is logged with its stack but not its message, which may quote a secret", () => {
	const quoting = new SyntaxError("Unexpected token in canary\n    at canary (file:///canary.ts:1:1)\ncanary");
	const wrapping = new Error("canary", { cause: quoting });
	const renamed = new TypeError("canary-first");
	renamed.message = "changed";
	const lines = logged((log) => {
		log.unexpectedError("webhook", wrapping);
		log.unexpectedError("webhook", renamed);
		log.unexpectedError("webhook", "canary");
	});
	expect(JSON.stringify(lines)).not.toContain("canary");
	const stack = expect.arrayContaining([expect.stringMatching(/log\.test\.ts:\d+:\d+/)]);
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
		log.storeFailed(away);
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
	const all = (log: Log) => {
		log.stopped();
		log.requestFailed(request, new ServiceError("not_found", ""));
		log.storeFailed(new Error(""));
	};
	expect(logged(all, "info")).toHaveLength(3);
	expect(logged(all, "warn")).toHaveLength(2);
	expect(logged(all, "error")).toHaveLength(1);
	expect(logged(all, "silent")).toEqual([]);
});

test("repeated events are logged once in full and then summed up, and the sums precede the stop", () => {
	const [one, two] = ["0190d6a0-0000-7000-8000-00000000000a", "0190d6a0-0000-7000-8000-00000000000b"];
	const broken = (id: string, ...names: string[]) => {
		const violations = names.map((name) => ({ path: [name], type: "missing", message: "" }));
		return new ServiceError("invalid_record", "", { violations, conversationId: id });
	};
	const error = new Error("the disk is full");
	const unexpected = new RangeError("canary");
	const lines = logged((log) => {
		for (const round of [1, 2, 3]) {
			log.requestFailed({ ...request, caller: "sender" }, broken(round < 3 ? one : two, "id", `member-${round}`));
			log.requestFailed({ ...request, caller: "sender" }, unexpected);
			log.connectionFailed({ listener: "http", code: "HPE_X", reason: "why", peer: `192.0.2.${round}:1` });
			log.connectionFailed({ listener: "http", code: "CERT_HAS_EXPIRED", peer: undefined });
			log.storeFailed(error);
			log.intakeFailed(error);
			log.recordUnreadable({ conversationId: one, sequence: BigInt(round), error });
			log.eventUnreadable({ conversationId: one, sequence: BigInt(round), error });
			log.statementsRefused(two, broken(two, "title").violations);
		}
		log.stopped();
	});
	const first = [
		"request_refused",
		"request_failed",
		"connection_failed",
		"connection_failed",
		"store_failed",
		"intake_failed",
		"record_unreadable",
		"event_unreadable",
		"statements_refused",
	];
	expect(lines.slice(0, 9)).toMatchObject(first.map((event) => ({ event })));
	const sum = { count: 2, since: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/), msg: expect.any(String) };
	const who = { ...request, caller: "sender" };
	const message = "Error: the disk is full";
	const unreadable = { error: message, conversationIds: [one], sequences: ["2", "3"] };
	expect(lines.slice(9)).toEqual([
		{
			...sum,
			level: "warn",
			event: "requests_refused",
			...who,
			kind: "invalid_record",
			reasons: { missing: 4 },
			conversationIds: [one, two],
			locs: ["body.id", 'body["member-2"]', 'body["member-3"]'],
		},
		{
			...sum,
			level: "error",
			event: "requests_failed",
			...who,
			error: expect.stringMatching(/^RangeError at .*log\.test\.ts:\d+:\d+\)?$/),
		},
		{
			...sum,
			level: "warn",
			event: "connections_failed",
			listener: "http",
			code: "HPE_X",
			reason: "why",
			peers: ["192.0.2.2:1", "192.0.2.3:1"],
		},
		{ ...sum, level: "warn", event: "connections_failed", listener: "http", code: "CERT_HAS_EXPIRED" },
		{ ...sum, level: "error", event: "store_failures", error: message },
		{ ...sum, level: "error", event: "intake_failures", error: message },
		{ ...sum, level: "error", event: "records_unreadable", ...unreadable },
		{ ...sum, level: "error", event: "events_unreadable", ...unreadable },
		{
			...sum,
			level: "warn",
			event: "more_statements_refused",
			reasons: { missing: 2 },
			conversationIds: [two],
			locs: ["record.title"],
		},
		{ level: "info", event: "stopped", msg: "The service has stopped" },
	]);
});
