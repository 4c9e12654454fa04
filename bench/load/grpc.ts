import { type ClientHttp2Session, connect, constants, type OutgoingHttpHeaders } from "node:http2";
import { serve } from "../processes/parent.ts";
import { loadPlan } from "./plan.ts";
import { type Lane, run } from "./run.ts";

/** gRPC load client: unary calls on a few HTTP/2 connections. */

const SESSIONS = 4;
/** Large enough that flow control delays no response. */
const WINDOW_BYTES = 64 * 2 ** 20;

serve(loadPlan, async (plan) => {
	const sessions = await Promise.all(Array.from({ length: SESSIONS }, () => open(plan.port)));
	try {
		const headers = {
			[constants.HTTP2_HEADER_METHOD]: "POST",
			[constants.HTTP2_HEADER_PATH]: plan.path,
			[constants.HTTP2_HEADER_CONTENT_TYPE]: "application/grpc",
			[constants.HTTP2_HEADER_TE]: "trailers",
			...(plan.key === undefined ? {} : { "x-access-token": plan.key }),
		};
		const lanes = Array.from({ length: plan.concurrency }, (_, index) => sessions[index % SESSIONS]).flatMap(
			(session) => (session === undefined ? [] : [laneOf(session, headers)]),
		);
		return await run(plan, lanes);
	} finally {
		for (const session of sessions) session.destroy();
	}
});

function open(port: number): Promise<ClientHttp2Session> {
	return new Promise((resolve, reject) => {
		const session = connect(`http://127.0.0.1:${port}`, { settings: { initialWindowSize: WINDOW_BYTES } });
		session.once("error", reject);
		session.once("connect", () => {
			session.setLocalWindowSize(WINDOW_BYTES);
			resolve(session);
		});
	});
}

function laneOf(session: ClientHttp2Session, headers: OutgoingHttpHeaders): Lane {
	return (request) =>
		new Promise((resolve) => {
			let wrong: string | undefined = "a call that ended without a status";
			const stream = session.request(headers, { endStream: false });
			const onStatus = (fields: Record<string, unknown>): void => {
				const status = fields["grpc-status"];
				if (status !== undefined) wrong = status === "0" ? undefined : `status ${status}: ${fields["grpc-message"]}`;
			};
			stream.on("response", onStatus);
			stream.on("trailers", onStatus);
			stream.on("error", (error) => {
				wrong = String(error);
			});
			stream.on("close", () => resolve(wrong));
			stream.resume();
			stream.end(request);
		});
}
