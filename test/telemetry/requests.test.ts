import fc from "fast-check";
import { expect, test } from "vitest";
import { ServiceError } from "../../src/errors.ts";
import type { EndedRequest } from "../../src/telemetry/metrics.ts";
import { Requests } from "../../src/telemetry/requests.ts";

function recorded() {
	const ended: EndedRequest[] = [];
	const violated: string[] = [];
	const unauthenticated: string[] = [];
	const logged: unknown[] = [];
	const requests = new Requests({
		log: { requestFailed: (request, error) => logged.push([request, error]), requestEnded: () => undefined },
		metrics: {
			ended: (request) => ended.push(request),
			violated: (type) => violated.push(type),
			unauthenticated: (transport) => unauthenticated.push(transport),
		},
	});
	return { requests, ended, violated, unauthenticated, logged };
}

const target = { transport: "http", method: "POST", path: "/a" } as const;
const call = { transport: "grpc", path: "/a.B/C", route: "/a.B/C" } as const;
const none = () => undefined;

test("a request has the id that its caller gave if that is short and of safe characters, else a new UUID", () => {
	const { requests } = recorded();
	const idFor = (given: string | undefined) => requests.begin(target, () => given).id;
	const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
	for (const good of ["a", "0190d6a0-0000-7000-8000-00000000000a", "Root=1-67a:b.c+d_e", "x".repeat(64)])
		expect(idFor(good)).toBe(good);
	for (const bad of [undefined, "", "x".repeat(65), "a b", 'a"', "a\n", "a,b", "ü", "a/../b", "{}"])
		expect(idFor(bad)).toMatch(uuid);
	expect(idFor(undefined)).not.toBe(idFor(undefined));
	fc.assert(fc.property(fc.string(), (given) => /^[\w.:+=-]{1,64}$/.test(idFor(given))));
});

test("a refusal is logged with the request's id and caller, and counted in metrics by its kind and broken rules", () => {
	const { requests, ended, violated, logged } = recorded();
	const request = requests.begin(
		target,
		() => "mine",
		() => "192.0.2.7:1",
	);
	expect(requests.open).toEqual({ http: 1, grpc: 0 });
	request.routed("/a/{id}");
	request.admitted({ name: "sender", owner: undefined }, "ingest");
	request.received(Buffer.from("7 bytes"));
	const violation = (type: string) => ({ path: [], type, message: "" });
	const violations = [violation("missing"), violation("greater_than"), violation("missing")];
	const error = new ServiceError("invalid_record", "", { violations });
	request.failed(error, "c");
	request.end(true, 422);
	request.end(false);
	const named = { requestId: "mine", traceId: undefined, caller: "sender", peer: undefined, conversationId: "c" };
	expect(logged).toEqual([[{ transport: "http", operation: "POST /a/{id}", ...named }, error]]);
	expect(violated).toEqual(["missing", "greater_than", "missing"]);
	expect(ended).toEqual([
		{
			...target,
			route: "/a/{id}",
			status: 422,
			failure: "invalid_record",
			seconds: expect.any(Number),
			bytes: 7,
		},
	]);
	expect(requests.open).toEqual({ http: 0, grpc: 0 });
});

test("a request without a valid key is logged with the address of its client, and counted", () => {
	const { requests, logged, unauthenticated } = recorded();
	const refused = new ServiceError("unauthenticated", "");
	requests.begin(target, none, () => "192.0.2.7:1").failed(refused);
	expect(logged).toMatchObject([[{ caller: undefined, peer: "192.0.2.7:1" }, {}]]);
	requests.begin(target, none).failed(new ServiceError("not_found", ""));
	// A watch ends so when its key is revoked.
	const watch = requests.begin(call, none);
	watch.admitted({ name: "reader", owner: undefined }, "read");
	watch.failed(refused);
	expect(unauthenticated).toEqual(["http"]);
});

test("a request ends as a success, as an unexpected failure, or as canceled by its client", () => {
	const { requests, ended, logged } = recorded();
	requests.begin(call, none).end(true, 200);
	const failing = requests.begin(call, none);
	const failure = new RangeError("x");
	failing.failed(failure);
	failing.end(true, 500);
	requests.begin(call, none).end(false, 200);
	expect(ended.map(({ status, failure }) => [status, failure])).toEqual([
		[200, undefined],
		[500, "unexpected"],
		[undefined, "canceled"],
	]);
	expect(logged).toEqual([[expect.anything(), failure]]);
});

test("without tracing, the work of a request is run as it is", () => {
	const { requests } = recorded();
	expect(requests.begin(target, none).run(() => 7)).toBe(7);
});
