import { once } from "node:events";
import { type ClientHttp2Session, connect } from "node:http2";
import type { DescMethod } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { type Endpoints, rpcPath } from "./clients.ts";
import { responseTo } from "./http2-lanes.ts";

/** Protocols over which a test writes a unary request itself, well-formed or not. */
export const RAW_FORMS = ["Connect JSON", "Connect", "gRPC-Web", "gRPC"] as const;
export type RawForm = (typeof RAW_FORMS)[number];

/** Response of a unary call. */
export interface RawAnswer {
	/** Undefined for success. */
	readonly code: Code | undefined;
	readonly message: string;
}

/** Returns the name of an RPC's code. Undefined means success. */
export function codeName(code: Code | undefined): string {
	return code === undefined ? "OK" : (Code[code] ?? String(code));
}

/** Sends the bytes of a request message, or its text for Connect JSON. */
export async function callRaw(
	service: Endpoints,
	form: RawForm,
	method: DescMethod,
	message: Uint8Array | string,
	key: string | undefined,
): Promise<RawAnswer> {
	const bytes = Buffer.from(message);
	if (form === "gRPC") return await callGrpc(service, method, bytes, key);
	const type = {
		"Connect JSON": "application/json",
		Connect: "application/proto",
		"gRPC-Web": "application/grpc-web+proto",
	};
	const response = await fetch(service.http + rpcPath(method), {
		method: "POST",
		headers: { "Content-Type": type[form], ...(key === undefined ? {} : { "X-Access-Token": key }) },
		body: form === "gRPC-Web" ? framed(bytes) : bytes,
	});
	const text = await response.text();
	if (form !== "gRPC-Web") return connectAnswer(response.status, text);
	// The trailers are in the body, or among the headers in a response without messages.
	const trailers = new Map(response.headers);
	for (const [, name = "", value = ""] of text.matchAll(/(grpc-[a-z-]+): ?([^\r\n]*)/gi))
		trailers.set(name.toLowerCase(), value);
	return grpcAnswer(trailers.get("grpc-status"), trailers.get("grpc-message"));
}

/**
 * Returns a message with gRPC's prefix: the compressed flag and the length.
 *
 * @param compressed 1 if the message is compressed with the algorithm in `grpc-encoding`
 */
export function framed(message: Uint8Array, compressed: 0 | 1 = 0): Buffer<ArrayBuffer> {
	const prefix = Buffer.alloc(5);
	prefix[0] = compressed;
	prefix.writeUInt32BE(message.length, 1);
	return Buffer.concat([prefix, message]);
}

function connectAnswer(status: number, text: string): RawAnswer {
	if (status === 200) return { code: undefined, message: "" };
	const { code, message = "" } = JSON.parse(text);
	const name = String(code).replaceAll("_", "");
	const [, number] = Object.entries(Code).find(([known]) => known.toLowerCase() === name) ?? [];
	return { code: typeof number === "number" ? number : Code.Unknown, message };
}

function grpcAnswer(status: unknown, message: unknown): RawAnswer {
	const code = Number(status ?? Code.Unknown);
	return { code: code === 0 ? undefined : code, message: decodeURIComponent(String(message ?? "")) };
}

async function callGrpc({ grpc }: Endpoints, method: DescMethod, bytes: Buffer, key: string | undefined) {
	const session = connect(`http://${grpc}`);
	try {
		await once(session, "connect");
		const fields: Record<string, string> = key === undefined ? {} : { "x-access-token": key };
		const answer = await callOver(session, method, framed(bytes), fields);
		return answer ?? { code: Code.Unknown, message: "" };
	} finally {
		session.destroy();
	}
}

/**
 * Makes a gRPC call over an existing connection. The body need not be a framed message.
 *
 * @param fields header fields in addition to the default ones
 * @returns undefined when the stream ends without a status
 */
export async function callOver(
	session: ClientHttp2Session,
	method: DescMethod,
	body: Uint8Array,
	fields: Readonly<Record<string, string>>,
): Promise<RawAnswer | undefined> {
	const headers = { ":method": "POST", ":path": rpcPath(method), "content-type": "application/grpc", te: "trailers" };
	const answered = await responseTo(session, { ...headers, ...fields }, body);
	const status = answered.get("grpc-status");
	return status === undefined ? undefined : grpcAnswer(status, answered.get("grpc-message"));
}
