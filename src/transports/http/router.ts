import type { Gate } from "../../access/gate.ts";
import type { Principal, Scope } from "../../access/keys.ts";
import { ServiceError } from "../../errors.ts";
import { parseUuid } from "../../record/json/scalars.ts";
import type { ObservedRequest } from "../../telemetry/requests.ts";
import { type Admission, type Permit, workOf } from "../admission.ts";
import { certificateNameOf, LIMITS, type Limits } from "../connections.ts";
import { discardBody } from "./body.ts";
import {
	ClientSignal,
	type ContentResponse,
	enter,
	limitResponseTime,
	pathOf,
	sendContent,
	sendError,
} from "./exchange.ts";
import type { ObservedHandler, Request, Response } from "./http-listener.ts";

/** A request that the gate has let in, as the handler of a route gets it. */
export interface RouteRequest {
	readonly request: Request;
	readonly response: Response;
	readonly permit: Pick<Permit, "reserve">;
	readonly signal: Pick<AbortSignal, "aborted">;
	/** Percent-decoded path segments for the `{name}` segments of the route, by name. */
	readonly params: Readonly<Record<string, string>>;
	/** Query of the URL, not decoded, without the question mark. */
	readonly search: string;
	/** Undefined only on a public route. */
	readonly principal: Principal | undefined;
	readonly observed: ObservedRequest;
}

export interface Route {
	readonly method: "GET" | "POST" | "PATCH" | "DELETE";
	/**
	 * Path of the route. A segment `{name}` matches any one segment, and `{name}:verb` one that ends in `:verb`. The id of
	 * a conversation is named `id`.
	 */
	readonly path: string;
	/** Scope that a key needs, or `public` for a route without a key. */
	readonly scope: Scope | "public";
	/** Set for a small response that is sent however many requests are under way: such requests do not count. */
	readonly isProbe?: true;
	/** Set for a route that only says that its method is not allowed. */
	readonly isRefusal?: true;
	/** Set for a route that sends its response as a stream. */
	readonly isStream?: true;
	/**
	 * Returns the body of the response, as JSON text or with its own status and type; undefined when a stream has ended. An
	 * error that it throws before the response has begun is sent.
	 */
	readonly handle: (request: RouteRequest) => Promise<string | ContentResponse | undefined>;
}

/** The permit of a probe, which does not count. */
const UNCOUNTED: Pick<Permit, "reserve" | "reserveResponse" | "hold"> = {
	reserve: () => undefined,
	reserveResponse: () => undefined,
	hold: () => () => undefined,
};

interface Match {
	readonly route: Route;
	readonly params: Readonly<Record<string, string>>;
}

interface RouterOptions {
	readonly routes: readonly Route[];
	/** Handlers of RPCs by path. They answer requests of every method, and call the gate themselves. */
	readonly rpcs?: ReadonlyMap<string, ObservedHandler>;
	readonly gate: Gate;
	readonly admission: Pick<Admission, "enter">;
	readonly limits?: Pick<Limits, "answerTime">;
}

/**
 * Returns a handler that answers HTTP requests by the RPC or the first route that fits. The gate decides before the body
 * is read. A request for an unknown path gets a 404. A known path with another method gets a 405 with `Allow` (RFC 9110,
 * section 15.5.6).
 */
export function createRouter({ routes, rpcs, gate, admission, limits = LIMITS }: RouterOptions): ObservedHandler {
	const find = routeFinder(routes);
	return (request, response, observed) => {
		const { method = "", url = "" } = request;
		const path = pathOf(url);
		const rpc = rpcs?.get(path);
		if (rpc !== undefined) {
			rpc(request, response, observed);
			return;
		}
		let match: Match | undefined;
		const signal = new ClientSignal(request, response);

		const answer = async (): Promise<void> => {
			const found = find(path);
			if (found.length === 0) throw new ServiceError("not_found", "Not Found");
			const wanted = method === "HEAD" ? "GET" : method;
			match = found.find(({ route }) => route.method === wanted);
			if (match === undefined) {
				const known = found[0]?.route.path;
				if (known !== undefined) observed.routed(known);
				response.setHeader("Allow", allowed(found));
				throw new ServiceError("method_not_allowed", "Method Not Allowed");
			}
			const { route, params } = match;
			observed.routed(route.path);
			let principal: Principal | undefined;
			if (route.scope !== "public") {
				principal = gate.admit(route.scope, request.rawHeaders, () => certificateNameOf(request.socket));
				observed.admitted(principal, route.scope);
			}
			const work = workOf(route.scope, route.isStream === true);
			const permit = route.isProbe === true ? UNCOUNTED : enter(admission, work, request, response);
			// The work counts until it is done, also when its client has gone.
			const release = permit.hold();
			try {
				const search = url.slice(path.length + 1);
				const routeRequest = { request, response, params, search, principal, permit, signal, observed };
				// A stream lasts too long for a span.
				const handled = () => route.handle(routeRequest);
				const result = await (route.isStream === true ? handled() : observed.run(handled));
				if (result === undefined) return;
				const sent = typeof result === "string" ? { status: 200, content: result, type: "application/json" } : result;
				permit.reserveResponse(Buffer.byteLength(sent.content));
				sendContent(response, sent);
				limitResponseTime(request, response, limits.answerTime);
			} finally {
				release();
			}
		};

		answer().catch((error: unknown) => {
			// The client has gone, so nobody waits for a response.
			if (signal.aborted || (error instanceof Error && error.name === "AbortError")) return;
			observed.failed(error, parseUuid(match?.params.id ?? ""));
			discardBody(request);
			if (response.headersSent) response.destroy();
			else sendError(response, error);
		});
	};
}

/** Reads the JSON text of a path in the name of the caller of a request. */
type InnerRead = (call: RouteRequest, path: string, search: string) => Promise<string>;

/** Returns a function that answers further reads of a request that the gate has admitted with the scope `read`. */
export function innerReads(routes: readonly Route[]): InnerRead {
	const find = routeFinder(routes);
	return async (call, path, search) => {
		const match = find(path).find(
			({ route }) => route.method === "GET" && route.scope === "read" && route.isStream !== true,
		);
		const result = await match?.route.handle({ ...call, params: match.params, search });
		if (result === undefined) throw new ServiceError("not_found", "Not Found");
		return typeof result === "string" ? result : result.content.toString();
	};
}

/** Returns a function that finds the routes for a path. Routes without `{name}` segments take precedence, then verbs. */
function routeFinder(routes: readonly Route[]): (path: string) => Match[] {
	const fixed = new Map<string, Match[]>();
	const open: { readonly start: string; readonly pattern: RegExp; readonly route: Route; readonly isVerb: boolean }[] =
		[];
	for (const route of routes) {
		if (route.path.includes("{")) {
			const [start = ""] = route.path.split("{", 1);
			open.push({ start, pattern: patternOf(route.path), route, isVerb: /\}:[\w-]+$/.test(route.path) });
		} else fixed.set(route.path, [...(fixed.get(route.path) ?? []), { route, params: {} }]);
	}
	return (path) => {
		const exact = fixed.get(path);
		if (exact !== undefined) return exact;
		const [found, verbs]: [Match[], Match[]] = [[], []];
		for (const { start, pattern, route, isVerb } of open) {
			// Most patterns need not be tried.
			const groups = path.startsWith(start) ? pattern.exec(path)?.groups : undefined;
			const params = groups && paramsOf(groups);
			if (params !== undefined) (isVerb ? verbs : found).push({ route, params });
		}
		return verbs.length > 0 ? verbs : found;
	};
}

function allowed(found: readonly Match[]): string {
	return found
		.filter(({ route }) => route.isRefusal !== true)
		.flatMap(({ route }) => (route.method === "GET" ? ["GET", "HEAD"] : [route.method]))
		.join(", ");
}

/** Returns the pattern of the paths of a route, with a named group for each `{name}`. */
function patternOf(path: string): RegExp {
	const parts = path.split(/\{(\w+)\}/);
	return new RegExp(`^${parts.map((part, n) => (n % 2 === 0 ? RegExp.escape(part) : `(?<${part}>[^/]+)`)).join("")}$`);
}

/** Returns the decoded groups of a path; undefined when one of them is not percent-encoded UTF-8. */
function paramsOf(groups: Readonly<Record<string, string>>): Match["params"] | undefined {
	const decoded = Object.entries(groups).map(([name, text]) => [name, percentDecode(text)] as const);
	const params = decoded.flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const]));
	return params.length < decoded.length ? undefined : Object.fromEntries(params);
}

/** Decodes a percent-encoded text (RFC 3986, section 2.1). Returns undefined when it is not percent-encoded UTF-8. */
export function percentDecode(text: string): string | undefined {
	try {
		return decodeURIComponent(text);
	} catch {
		return undefined;
	}
}
