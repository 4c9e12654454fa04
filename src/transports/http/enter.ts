import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Admission, Permit, Work } from "../admission.ts";
import { whenGone } from "./when-gone.ts";

/**
 * Counts a request until its response has left or its connection is gone. A client that waits for the response 100
 * before it sends the body (RFC 9110, section 10.1.1) gets it.
 *
 * @throws ServiceError as {@link Admission.enter} does
 */
export function enter(
	admission: Pick<Admission, "enter">,
	work: Work,
	request: IncomingMessage | Http2ServerRequest,
	response: ServerResponse | Http2ServerResponse,
): Permit {
	const permit = admission.enter(work);
	whenGone(request, response, permit.hold());
	if (request.headers.expect !== undefined && request.httpVersion !== "1.0") {
		if (!("stream" in request)) response.setHeader("Connection", "keep-alive");
		response.writeContinue();
	}
	return permit;
}
