import { Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { ConversationEventService } from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import { ConversationGapService } from "../../../gen/conversations/v1/conversation_gap_service_pb.js";
import { ConversationReportService } from "../../../gen/conversations/v1/conversation_report_service_pb.js";
import { ConversationSearchService } from "../../../gen/conversations/v1/conversation_search_service_pb.js";
import { ConversationSenderService } from "../../../gen/conversations/v1/conversation_sender_service_pb.js";
import { ConversationService } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { RefusedPostService } from "../../../gen/conversations/v1/refused_post_service_pb.js";
import { ScoreService } from "../../../gen/conversations/v1/score_service_pb.js";
import { ServiceInfoService } from "../../../gen/conversations/v1/service_info_service_pb.js";
import { accessKey } from "./session.ts";

/** The one place that talks to the service. It uses the public RPCs only. */

const withKey: Interceptor = (next) => (request) => {
	if (accessKey.value !== undefined) request.header.set("X-Access-Token", accessKey.value);
	return next(request);
};

/** Address of the service: the folder of the page. */
export const BASE_URL = new URL(".", document.baseURI).href.replace(/\/$/, "");

/** Carries the calls of all clients, also of those that a page makes for itself. */
export const transport = createConnectTransport({ baseUrl: BASE_URL, useBinaryFormat: true, interceptors: [withKey] });

export const conversations = createClient(ConversationService, transport);
export const events = createClient(ConversationEventService, transport);
export const conversationGaps = createClient(ConversationGapService, transport);
export const reports = createClient(ConversationReportService, transport);
export const refusedPosts = createClient(RefusedPostService, transport);
export const scores = createClient(ScoreService, transport);
export const search = createClient(ConversationSearchService, transport);
export const senders = createClient(ConversationSenderService, transport);
export const serviceInfo = createClient(ServiceInfoService, transport);

/** What a person reads whose key is not known, has expired or is revoked. */
export const KEY_REFUSED = "The service does not accept this access key. It may have expired or been revoked.";

/** What went wrong with a call, in the words of the console. */
export interface Problem {
	readonly kind: "key" | "scope" | "missing" | "away" | "argument" | "other";
	readonly text: string;
}

/** Returns what an error of a call means for a person. */
export function problemOf(error: unknown): Problem {
	const { code, rawMessage } = ConnectError.from(error);
	switch (code) {
		case Code.Unauthenticated:
			return { kind: "key", text: KEY_REFUSED };
		case Code.PermissionDenied:
			return { kind: "scope", text: rawMessage };
		case Code.NotFound:
			return { kind: "missing", text: "The service has nothing with this id." };
		case Code.InvalidArgument:
		case Code.OutOfRange:
			return { kind: "argument", text: rawMessage };
		case Code.Unavailable:
		case Code.DeadlineExceeded:
		case Code.ResourceExhausted:
		case Code.Unknown:
			return { kind: "away", text: "The service cannot be reached." };
		case Code.Unimplemented:
			return { kind: "other", text: "This release of the service does not offer this." };
		default:
			return { kind: "other", text: rawMessage };
	}
}

/**
 * Reads JSON from a route of the API.
 *
 * @param path path below the folder of the page, such as api/v1/conversations/ID
 * @throws ConnectError as the RPCs do
 */
export async function readJson(path: string): Promise<unknown> {
	return await (await read(path, "application/json")).json();
}

/**
 * Reads CSV from a route of the API.
 *
 * @returns the text, and the parameters of the next page if there is one
 * @throws ConnectError as the RPCs do
 */
export async function readCsv(path: string): Promise<{ readonly text: string; readonly next?: URLSearchParams }> {
	const response = await read(path, "text/csv");
	const [, next] = /^<\?([^>]*)>; rel="next"$/.exec(response.headers.get("Link") ?? "") ?? [];
	return { text: await response.text(), ...(next !== undefined && { next: new URLSearchParams(next) }) };
}

const CODES: Readonly<Record<number, Code>> = {
	400: Code.InvalidArgument,
	401: Code.Unauthenticated,
	403: Code.PermissionDenied,
	404: Code.NotFound,
	410: Code.OutOfRange,
	429: Code.ResourceExhausted,
	502: Code.Unavailable,
	503: Code.Unavailable,
	504: Code.Unavailable,
};

async function read(path: string, type: string): Promise<Response> {
	const key = accessKey.value;
	const headers = { Accept: type, ...(key !== undefined && { "X-Access-Token": key }) };
	const response = await fetch(`${BASE_URL}/${path}`, { headers });
	if (response.ok) return response;
	throw new ConnectError(await response.text(), CODES[response.status] ?? Code.Internal);
}
