import type { IncomingHttpHeaders } from "node:http";
import { constants, type Http2Stream } from "node:http2";
import type { Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { ServiceError } from "../../errors.ts";
import { releaseWhole } from "../../memory.ts";

/** The part of an HTTP/1.1 or HTTP/2 request that reading its body needs. */
export interface BodyRequest extends Readable {
	readonly headers: IncomingHttpHeaders;
	/** The stream of an HTTP/2 request. */
	readonly stream?: Pick<Http2Stream, "close">;
}

/** Maximum number of bytes of a refused body that are read and discarded, as {@link discardBody} says. */
export const DISCARDED_BYTES = 1024 * 1024;

/**
 * Reads the body of a request and decodes its content coding: `gzip` and `x-gzip` (RFC 9110, section 8.4.1) or none.
 *
 * A body whose Content-Length exceeds the limit is refused before any of it is read, any other body as soon as it
 * exceeds the limit. For gzip the limit applies to the decompressed bytes, so a small body that decompresses to a huge
 * one takes no more memory than the limit. The compressed bytes may exceed the limit only by the little that gzip adds
 * to data that it cannot compress.
 *
 * After a refusal the rest of the body is discarded as {@link discardBody} does, so the caller can respond at once.
 *
 * @param reserve reserves memory: for the body before any byte is read if the header says its size, otherwise as the bytes
 *   arrive, and for what gzip decompresses. It throws to refuse the body
 * @throws ServiceError `too_large`, `unsupported_media_type` for another content coding, `invalid_argument` for damaged
 *   gzip data, or the error that `reserve` throws
 * @throws DOMException named `AbortError` when the client goes away first: nobody waits for a response then, and
 *   there is nothing to log
 */
export async function readBody(request: BodyRequest, maxBytes: number, reserve: ReserveBytes): Promise<Buffer> {
	try {
		const gzip = isGzip(request.headers["content-encoding"]);
		// Gzip adds some bytes to what it cannot compress. Without a limit a stream of empty blocks would never end.
		const maxReceived = gzip ? maxBytes * 1.0625 + 1024 : maxBytes;
		const declared = request.headers["content-length"];
		if (declared !== undefined && Number(declared) > maxReceived) throw tooLarge(maxBytes);
		if (request.destroyed) throw aborted();
		// Reserved as a whole, so that a body that has begun is not refused in its middle.
		if (declared !== undefined) reserve(Number(declared));
		const body = await readPlain(
			request,
			new Collector(maxReceived, declared === undefined ? reserve : ignore, maxBytes),
		);
		return gzip ? await unpack(body, maxBytes, reserve) : body;
	} catch (error) {
		discardBody(request);
		throw error;
	}
}

/**
 * Discards the rest of a request's body, so that its connection can carry the next request. If more than 1 MiB would
 * have to be discarded, the client is made to stop: over HTTP/1.1 its connection is closed, over HTTP/2 its stream is
 * closed without an error (RFC 9113, section 8.1). The limit `requestTime` ends the request of a client that stalls.
 */
export function discardBody(request: BodyRequest): void {
	let discarded = 0;
	request.on("error", ignore);
	request.on("data", (chunk: Buffer) => {
		discarded += chunk.length;
		if (discarded <= DISCARDED_BYTES) return;
		if (request.stream === undefined) request.destroy();
		else request.stream.close(constants.NGHTTP2_NO_ERROR);
	});
	request.resume();
}

/** Reads by events, which costs less than iteration: most bodies are one chunk, which is returned without a copy. */
function readPlain(request: BodyRequest, body: Collector): Promise<Buffer> {
	return new Promise((resolve, reject) => {
		const onAbort = () => {
			// A request also closes after it has ended. Then no error is made, because that takes time.
			if (!request.readableEnded) reject(aborted());
		};
		request.on("data", (chunk: Buffer) => {
			try {
				body.add(chunk);
			} catch (error) {
				reject(error);
			}
		});
		request.on("end", () => resolve(body.finish()));
		request.on("error", onAbort);
		request.on("close", onAbort);
	});
}

/** Reserves memory for bytes before they are kept. It throws to refuse them. */
export type ReserveBytes = (bytes: number) => void;

/** Collects the chunks of a body up to a limit. */
class Collector {
	readonly #maxBytes: number;
	readonly #reserve: ReserveBytes;
	readonly #shownLimit: number;
	#chunks: Buffer[] = [];
	#size = 0;
	#refused = false;

	/** @param shownLimit the limit that the refusal of a larger body names */
	constructor(maxBytes: number, reserve: ReserveBytes, shownLimit = maxBytes) {
		this.#maxBytes = maxBytes;
		this.#reserve = reserve;
		this.#shownLimit = shownLimit;
	}

	/** Adds a chunk. After a refusal nothing is kept. */
	add(chunk: Buffer): void {
		if (this.#refused) return;
		this.#size += chunk.length;
		try {
			if (this.#size > this.#maxBytes) throw tooLarge(this.#shownLimit);
			this.#reserve(chunk.length);
		} catch (error) {
			this.#refused = true;
			this.#chunks = [];
			throw error;
		}
		this.#chunks.push(chunk);
	}

	/** Returns all bytes that were added. A single chunk is returned without a copy. To be called once. */
	finish(): Buffer {
		const [first, ...others] = this.#chunks;
		if (first !== undefined && others.length === 0) return first;
		const whole = Buffer.concat(this.#chunks, this.#size);
		// Released at once, because the chunks of large bodies keep the garbage collector busy most of the time.
		for (const chunk of this.#chunks) releaseWhole(chunk);
		return whole;
	}
}

/**
 * Whether a Content-Encoding field names gzip. Names are case-insensitive (RFC 9110, section 8.4.1).
 *
 * @throws ServiceError `unsupported_media_type` for a coding other than gzip and none
 */
function isGzip(contentEncoding: string | undefined): boolean {
	const coding = contentEncoding?.trim().toLowerCase() ?? "";
	if (coding === "" || coding === "identity") return false;
	if (coding === "gzip" || coding === "x-gzip") return true;
	throw new ServiceError("unsupported_media_type", "The content coding is not supported: use gzip or none");
}

function tooLarge(maxBytes: number): ServiceError {
	return new ServiceError("too_large", `The body is larger than ${maxBytes} bytes`);
}

function aborted(): DOMException {
	return new DOMException("The client closed the connection before the body ended", "AbortError");
}

function ignore(): void {}

/** Decompresses data in gzip. It ends before zeros, which may pad the data. */
export async function unpack(compressed: Uint8Array, maxBytes: number, reserve: ReserveBytes): Promise<Buffer> {
	const collector = new Collector(maxBytes, reserve);
	const decoder = createGunzip();
	decoder.end(compressed);
	try {
		for await (const chunk of decoder) collector.add(chunk);
	} catch (error) {
		if (error instanceof ServiceError) throw error;
		throw new ServiceError("invalid_argument", "The gzip data is damaged", { cause: error });
	}
	return collector.finish();
}

/** A subtype begins with a letter or a digit (RFC 6838, section 4.2). `+json` is a suffix of RFC 6839. */
const JSON_MEDIA_TYPE = /^[ \t]*application\/(?:json|[a-z0-9][a-z0-9!#$&^_.+-]*\+json)[ \t]*(?:;|$)/i;

/**
 * Whether a Content-Type field names JSON: `application/json` or `application/*+json`, case-insensitive and with any
 * parameters (RFC 9110, section 8.3.1). A missing field does not.
 */
export function isJson(contentType: string | undefined): boolean {
	return contentType === "application/json" || (contentType !== undefined && JSON_MEDIA_TYPE.test(contentType));
}
