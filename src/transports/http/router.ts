import { type IncomingMessage, METHODS, type RequestListener } from "node:http";
import Fastify, { errorCodes, type FastifyReply, type FastifyRequest } from "fastify";
import { type Gate, KEY_HEADER } from "../../access/gate.ts";
import type { Principal, Scope } from "../../access/keys.ts";
import { ServiceError } from "../../errors.ts";
import type { RequestLog } from "../../telemetry/log.ts";
import { sendError } from "./answer.ts";
import { discardBody } from "./body.ts";
import { notJson } from "./media-type.ts";

/** A request that the gate has admitted. */
export interface RouteRequest {
	readonly request: IncomingMessage;
	/** Percent-decoded segments of the path that the route leaves open, by name. */
	readonly params: Readonly<Record<string, string>>;
	/** Query of the URL, undecoded and without the question mark. */
	readonly search: string;
	/** Undefined only on a public route. */
	readonly principal: Principal | undefined;
}

export interface Route {
	readonly method: "GET" | "POST";
	/** Path; a segment `{name}` takes any one segment. The id of a conversation is named `id`. */
	readonly path: string;
	/** Scope that a key needs, or `public` for a route that answers everyone. */
	readonly scope: Scope | "public";
	/** Gives the JSON text to answer with. What it throws becomes the answer. */
	readonly handle: (request: RouteRequest) => Promise<string>;
}

/** Longest segment that a route can take, in characters. What is longer is not found. */
const MAX_SEGMENT = 1024;

declare module "fastify" {
	interface FastifyRequest {
		/** Whom the gate admitted. */
		principal: Principal | undefined;
	}
}

/**
 * Makes a listener that answers HTTP requests by routes. The gate decides before the body is read. An unknown path is a
 * 404, a known path with another method a 405 with `Allow` (RFC 9110, section 15.5.6).
 */
export async function createRouter(routes: readonly Route[], gate: Gate, log: RequestLog): Promise<RequestListener> {
	// While the service stops, requests on connections that are still open get their answers.
	const app = Fastify({
		return503OnClosing: false,
		routerOptions: { maxParamLength: MAX_SEGMENT },
		// Errors about the URL, which Fastify's own answer would quote.
		frameworkErrors: (_, request, reply) => fail(notFound(), request, reply, splitUrl(request.raw).path),
	});
	app.decorateRequest("principal", undefined);
	// Routes read their bodies themselves, after the gate and within their own limits.
	app.removeAllContentTypeParsers();
	app.addContentTypeParser("*", (_request, _body, done) => done(null));

	const fail = (thrown: unknown, request: FastifyRequest, reply: FastifyReply, path: string): void => {
		// Fastify looks at the field before the route does.
		const error = thrown instanceof errorCodes.FST_ERR_CTP_INVALID_MEDIA_TYPE ? notJson() : thrown;
		const { raw, principal, params } = request;
		reply.hijack();
		// The client has gone: there is nobody to answer.
		if (error instanceof Error && error.name === "AbortError") return;
		const operation = `${raw.method} ${path}`;
		log.requestFailed(
			{ transport: "http", operation, caller: principal?.name, conversationId: textsOf(params).id },
			error,
		);
		discardBody(raw);
		if (reply.raw.headersSent) reply.raw.destroy();
		else sendError(reply.raw, error);
	};

	for (const method of METHODS)
		if (!app.supportedMethods.includes(method) && method !== "CONNECT") app.addHttpMethod(method);
	for (const [path, served] of Map.groupBy(routes, (route) => route.path)) {
		const route = {
			url: patternOf(path),
			errorHandler: (error: unknown, request: FastifyRequest, reply: FastifyReply) => fail(error, request, reply, path),
		};
		for (const { method, scope, handle } of served)
			app.route({
				...route,
				method,
				onRequest: async (request) => {
					const key = request.headers[KEY_HEADER];
					if (scope !== "public") request.principal = gate.admit(scope, typeof key === "string" ? key : undefined);
				},
				handler: async ({ raw, params, principal }, reply) => {
					const { search } = splitUrl(raw);
					const text = await handle({ request: raw, params: textsOf(params), search, principal });
					// As bytes, because to a text Fastify adds a charset, which JSON does not have (RFC 8259, section 11).
					return reply.header("Content-Type", "application/json").send(Buffer.from(text));
				},
			});
		const allowed = served.flatMap(({ method }) => (method === "GET" ? ["GET", "HEAD"] : [method]));
		app.route({
			...route,
			method: app.supportedMethods.filter((method) => !allowed.includes(method)),
			onRequest: async (_request, reply) => {
				reply.raw.setHeader("Allow", allowed.join(", "));
				throw new ServiceError("method_not_allowed", "Method Not Allowed");
			},
			handler: () => undefined,
		});
	}
	app.addHook("onRequest", async (request) => {
		// Fastify would read the body before it calls the handler of what is not found.
		if (request.is404) throw notFound();
	});
	app.setErrorHandler((error, request, reply) => fail(error, request, reply, splitUrl(request.raw).path));
	await app.ready();
	return (request, response) => app.routing(request, response);
}

function notFound(): ServiceError {
	return new ServiceError("not_found", "Not Found");
}

/** The path in Fastify's notation: `:name` takes a segment, `::` is a colon, and all else is written decoded. */
function patternOf(path: string): string {
	const segments = path.split("/").map((segment) => {
		const name = /^\{(\w+)\}$/.exec(segment)?.[1];
		return name === undefined ? decodeURI(segment).replaceAll(":", "::") : `:${name}(.+)`;
	});
	return segments.join("/");
}

/** Only the first question mark ends the path (RFC 3986, section 3.4). */
function splitUrl({ url = "" }: IncomingMessage): { path: string; search: string } {
	const end = url.includes("?") ? url.indexOf("?") : url.length;
	return { path: url.slice(0, end), search: url.slice(end + 1) };
}

/** The parameters of a path, which Fastify declares as unknown. */
function textsOf(params: unknown): Record<string, string> {
	const entries = Object.entries(typeof params === "object" && params !== null ? params : {});
	return Object.fromEntries(entries.map(([name, value]) => [name, String(value)]));
}
