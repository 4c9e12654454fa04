import type { IncomingHttpHeaders } from "node:http";
import type { ConversationReads } from "../../conversations/conversation-reads.ts";
import { invalid, uuid } from "../../conversations/read/filter.ts";
import type { WatchStart } from "../../conversations/watch/watch.ts";
import { watchUntilEnded } from "../../rpc/rpc-method.ts";
import { type EventStreamOptions, sendEventStream } from "../http/event-stream.ts";
import type { Route } from "../http/router.ts";
import {
	EVENT_FILTER_PARAMETERS,
	EVENT_REPEATABLE,
	eventFilterOf,
	FILTER_PARAMETERS,
	filterOf,
	known,
	REPEATABLE,
	secretsOf,
	updateViewOf,
} from "./parameters.ts";
import { Query, wholeNumber } from "./query.ts";

/** Paths of the streams under the configured base path. */
export const UPDATES_WATCH_PATH = "/api/v1/updates:watch";
export const EVENTS_WATCH_PATH = "/api/v1/events:watch";

/** Header by which a client of server-sent events resumes. */
export const LAST_EVENT_ID = "Last-Event-ID";

const TARGET_PARAMETERS = ["after_sequence", "conversation_id"] as const;
const UPDATE_PARAMETERS = [...TARGET_PARAMETERS, ...FILTER_PARAMETERS, "view", "origin", "secrets"] as const;
const EVENT_PARAMETERS = [...TARGET_PARAMETERS, ...EVENT_FILTER_PARAMETERS, "secrets"] as const;

/** Returns the routes that stream updates and events, in the JSON form of the lists, as the RPCs of watches do. */
export function watchRoutes(
	basePath: string,
	reads: Pick<ConversationReads, "of">,
	options: EventStreamOptions,
): readonly Route[] {
	return [
		{
			method: "GET",
			path: `${basePath}${UPDATES_WATCH_PATH}`,
			scope: "read",
			stream: async ({ search, principal, observed }, exchange) => {
				const parameters = new Query(search, UPDATE_PARAMETERS, REPEATABLE);
				const caller = known(principal);
				const { origin, ...view } = updateViewOf(parameters, caller);
				const filter = filterOf(parameters);
				const target = targetOf(parameters, exchange.request.headers);
				const request = { ...target, filter, origin, view, asJson: true, filterPrefix: "" };
				const watch = (over: AbortSignal) => reads.of(caller).watchUpdates(request, over);
				await sendEventStream(exchange, observed, (signal) => watchUntilEnded(caller, signal, watch), options);
			},
		},
		{
			method: "GET",
			path: `${basePath}${EVENTS_WATCH_PATH}`,
			scope: "read",
			stream: async ({ search, principal, observed }, exchange) => {
				const parameters = new Query(search, EVENT_PARAMETERS, EVENT_REPEATABLE);
				const caller = known(principal);
				const secrets = secretsOf(parameters, caller);
				const filter = eventFilterOf(parameters);
				const target = targetOf(parameters, exchange.request.headers);
				const request = { ...target, filter, secrets, asJson: true, filterPrefix: "" };
				const watch = (over: AbortSignal) => reads.of(caller).watchEvents(request, over);
				await sendEventStream(exchange, observed, (signal) => watchUntilEnded(caller, signal, watch), options);
			},
		},
	];
}

/**
 * Returns where a watch starts, and the only conversation that it covers. The header takes precedence, because a client
 * that resumes sends it with the address of its first request.
 */
function targetOf(parameters: Query<(typeof TARGET_PARAMETERS)[number]>, headers: IncomingHttpHeaders) {
	const conversationId = parameters.text("conversation_id");
	const after = parameters.number("after_sequence");
	const start: WatchStart = lastEventId(headers) ?? after ?? "now";
	return { start, conversationId: conversationId === "" ? undefined : uuid(conversationId, "conversation_id") };
}

/** @throws ServiceError `invalid_argument` for an id that is no sequence number */
function lastEventId(headers: IncomingHttpHeaders): bigint | undefined {
	const text = headers["last-event-id"];
	if (text === undefined || text === "") return undefined;
	const sequence = typeof text === "string" ? wholeNumber(text) : undefined;
	if (sequence === undefined) throw invalid(LAST_EVENT_ID, "must be a whole number, 0 or more");
	return sequence;
}
