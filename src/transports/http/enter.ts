import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Admission, Permit, Work } from "../admission.ts";
import { whenGone } from "./when-gone.ts";

/**
 * Counts a request until its response has left or its connection is gone.
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
	return permit;
}
