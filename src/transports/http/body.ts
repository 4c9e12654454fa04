import type { IncomingHttpHeaders } from "node:http";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { ServiceError } from "../../errors.ts";

/** What reading a body needs of a request, of HTTP/1.1 or HTTP/2. */
export interface BodyRequest extends Readable {
	readonly headers: IncomingHttpHeaders;
}

/** Most bytes of a refused body that are read and discarded. A longer body gets its connection closed. */
const drainBytes = 1024 * 1024;

/**
 * Reads the body of a request and undoes its content coding: `gzip` and `x-gzip` (RFC 9110, section 8.4.1) or
 * none.
 *
 * A body with a Content-Length over the limit is refused before any of it is read, any other one as soon as it passes
 * the limit. For gzip the limit applies to what comes out, which is decoded as it arrives, so a small body that unpacks
 * to a huge one costs no more memory than the limit; what goes in may exceed it only by the little that packing adds to
 * data that it cannot shrink.
 *
 * After a refusal the rest of the body is discarded as {@link discardBody} does, so the caller can answer at once.
 *
 * @param maxBytes most bytes that the decoded body may have
 * @returns the decoded body; empty when the request has none
 * @throws {ServiceError} `too_large`, `unsupported_media_type` for another content coding, or `invalid_argument` for
 *   damaged gzip data
 * @throws {DOMException} named `AbortError` when the client goes away first: there is nobody to answer, and nothing to
 *   log
 */
export async function readBody(request: BodyRequest, maxBytes: number): Promise<Buffer> {
	try {
		const gzip = isGzip(request.headers["content-encoding"]);
		const maxReceived = gzip ? maxGzipBytes(maxBytes) : maxBytes;
		const declared = request.headers["content-length"];
		if (declared !== undefined && Number(declared) > maxReceived) throw tooLarge(maxBytes);
		if (request.destroyed) throw aborted();
		return await (gzip ? readGzip(request, maxBytes, maxReceived) : readPlain(request, maxBytes));
	} catch (error) {
		discardBody(request);
		throw error;
	}
}

/**
 * Discards the rest of a request's body, so that its connection can carry the next request. A connection that sends
 * more than 1 MiB of it is closed instead. The server's `requestTimeout` ends the request of a client that stalls.
 */
export function discardBody(request: BodyRequest): void {
	let discarded = 0;
	request.on("error", ignore);
	request.on("data", (chunk: Buffer) => {
		discarded += chunk.length;
		if (discarded > drainBytes) request.destroy();
	});
	request.resume();
}

/** Reads by events instead of iteration, which costs less: most bodies are one chunk, which is given without a copy. */
function readPlain(request: BodyRequest, maxBytes: number): Promise<Buffer> {
	return new Promise((resolve, reject) => {
		const body = new Collector(maxBytes);
		const onAbort = () => {
			// A request also closes after it has ended, and an error takes time to make.
			if (!request.readableEnded) reject(aborted());
		};
		request.on("data", (chunk: Buffer) => {
			if (!body.add(chunk)) reject(tooLarge(maxBytes));
		});
		request.on("end", () => resolve(body.take()));
		request.on("error", onAbort);
		request.on("close", onAbort);
	});
}

async function readGzip(request: BodyRequest, maxBytes: number, maxReceived: number): Promise<Buffer> {
	const body = new Collector(maxBytes);
	const packed = async function* (): AsyncGenerator<Buffer, void, undefined> {
		let received = 0;
		// The request stays readable after a refusal, so that it can be answered.
		for await (const chunk of request.iterator({ destroyOnReturn: false })) {
			received += chunk.length;
			if (received > maxReceived) throw tooLarge(maxBytes);
			yield chunk;
		}
	};
	let complete = false;
	const collect = async (unpacked: AsyncIterable<Buffer>): Promise<void> => {
		for await (const chunk of unpacked) if (!body.add(chunk)) throw tooLarge(maxBytes);
		complete = true;
	};
	try {
		await pipeline(packed, createGunzip(), collect);
	} catch (error) {
		// The decoder ends at the first of the zeros that may pad gzip data, before the request has ended.
		if (complete) discardBody(request);
		else if (error instanceof ServiceError) throw error;
		else if (request.destroyed && !request.readableEnded) throw aborted();
		else throw new ServiceError("invalid_argument", "The gzip data is damaged", { cause: error });
	}
	return body.take();
}

/** Collects the chunks of a body up to a limit. */
class Collector {
	readonly #maxBytes: number;
	#chunks: Buffer[] = [];
	#size = 0;

	constructor(maxBytes: number) {
		this.#maxBytes = maxBytes;
	}

	/** Adds a chunk. False when the body has passed the limit. */
	add(chunk: Buffer): boolean {
		this.#size += chunk.length;
		if (this.#size > this.#maxBytes) {
			this.#chunks = [];
			return false;
		}
		this.#chunks.push(chunk);
		return true;
	}

	/** All that was added. A single chunk is given without a copy. To be called once. */
	take(): Buffer {
		const [first, ...others] = this.#chunks;
		if (first !== undefined && others.length === 0) return first;
		const whole = Buffer.concat(this.#chunks, this.#size);
		for (const chunk of this.#chunks) release(chunk);
		return whole;
	}
}

/**
 * Frees the memory of a chunk at once, if no other buffer shares it. The chunks of large bodies would keep the garbage
 * collector busy most of the time.
 */
function release({ buffer, byteLength }: Buffer): void {
	if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength && !buffer.detached) buffer.transfer(0);
}

/** Whether a Content-Encoding field says gzip rather than nothing; codings have no case (RFC 9110, section 8.4.1). */
function isGzip(contentEncoding: string | undefined): boolean {
	const coding = contentEncoding?.trim().toLowerCase() ?? "";
	if (coding === "" || coding === "identity") return false;
	if (coding === "gzip" || coding === "x-gzip") return true;
	const name = JSON.stringify(coding.slice(0, 40));
	throw new ServiceError("unsupported_media_type", `The content coding ${name} is not supported: use gzip or none`);
}

/**
 * Most bytes of gzip data that can be worth reading. Deflate stores what it cannot shrink in blocks with 5 bytes of
 * overhead (RFC 1951, section 3.2.4), 16 KiB long as zlib writes them; a sixteenth allows for far shorter ones. Without
 * this bound a stream of empty blocks, from which nothing comes out, would never end.
 */
function maxGzipBytes(maxBytes: number): number {
	return maxBytes + Math.ceil(maxBytes / 16) + 1024;
}

function tooLarge(maxBytes: number): ServiceError {
	return new ServiceError("too_large", `The body is larger than ${maxBytes} bytes`);
}

function aborted(): DOMException {
	return new DOMException("The client closed the connection before the body ended", "AbortError");
}

function ignore(): void {}
