import type { IncomingHttpHeaders } from "node:http";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { ServiceError } from "../../errors.ts";
import { release } from "../../memory.ts";

/** What reading a body needs of a request, of HTTP/1.1 or HTTP/2. */
export interface BodyRequest extends Readable {
	readonly headers: IncomingHttpHeaders;
}

/** Most bytes of a refused body that are read and discarded. A longer body gets its connection closed. */
export const DISCARDED_BYTES = 1024 * 1024;

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
 * @param take is told of the decoded body's bytes: of all before any is read where the header gives their number, else
 *   as they arrive. What it throws refuses the body
 * @returns the decoded body; empty when the request has none
 * @throws {ServiceError} `too_large`, `unsupported_media_type` for another content coding, `invalid_argument` for
 *   damaged gzip data, or what `take` throws
 * @throws {DOMException} named `AbortError` when the client goes away first: there is nobody to answer, and nothing to
 *   log
 */
export async function readBody(request: BodyRequest, maxBytes: number, take: TakeBytes): Promise<Buffer> {
	try {
		const gzip = isGzip(request.headers["content-encoding"]);
		const maxReceived = gzip ? maxGzipBytes(maxBytes) : maxBytes;
		const declared = request.headers["content-length"];
		if (declared !== undefined && Number(declared) > maxReceived) throw tooLarge(maxBytes);
		if (request.destroyed) throw aborted();
		if (gzip) return await readGzip(request, new Collector(maxBytes, take), maxReceived);
		if (declared === undefined) return await readPlain(request, new Collector(maxBytes, take));
		// Reserved as a whole, so that a body that has begun is not refused in its middle.
		take(Number(declared));
		return await readPlain(request, new Collector(maxBytes, ignore));
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
		if (discarded > DISCARDED_BYTES) request.destroy();
	});
	request.resume();
}

/** Reads by events instead of iteration, which costs less: most bodies are one chunk, which is given without a copy. */
function readPlain(request: BodyRequest, body: Collector): Promise<Buffer> {
	return new Promise((resolve, reject) => {
		const onAbort = () => {
			// A request also closes after it has ended, and an error takes time to make.
			if (!request.readableEnded) reject(aborted());
		};
		request.on("data", (chunk: Buffer) => {
			try {
				body.add(chunk);
			} catch (error) {
				reject(error);
			}
		});
		request.on("end", () => resolve(body.take()));
		request.on("error", onAbort);
		request.on("close", onAbort);
	});
}

async function readGzip(request: BodyRequest, body: Collector, maxReceived: number): Promise<Buffer> {
	const packed = async function* (): AsyncGenerator<Buffer, void, undefined> {
		let received = 0;
		// The request stays readable after a refusal, so that it can be answered.
		for await (const chunk of request.iterator({ destroyOnReturn: false })) {
			received += chunk.length;
			if (received > maxReceived) throw tooLarge(body.maxBytes);
			yield chunk;
		}
	};
	let complete = false;
	const collect = async (unpacked: AsyncIterable<Buffer>): Promise<void> => {
		for await (const chunk of unpacked) body.add(chunk);
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

/** Is told of bytes before they are kept. What it throws refuses them. */
export type TakeBytes = (bytes: number) => void;

/** Collects the chunks of a body up to a limit. */
export class Collector {
	readonly maxBytes: number;
	readonly #take: TakeBytes;
	#chunks: Buffer[] = [];
	#size = 0;
	#refused = false;

	constructor(maxBytes: number, take: TakeBytes) {
		this.maxBytes = maxBytes;
		this.#take = take;
	}

	/**
	 * Adds a chunk. After a refusal nothing is kept.
	 *
	 * @throws ServiceError `too_large` when the body passes the limit, or what `take` throws
	 */
	add(chunk: Buffer): void {
		if (this.#refused) return;
		this.#size += chunk.length;
		try {
			if (this.#size > this.maxBytes) throw tooLarge(this.maxBytes);
			this.#take(chunk.length);
		} catch (error) {
			this.#refused = true;
			this.#chunks = [];
			throw error;
		}
		this.#chunks.push(chunk);
	}

	/** All that was added. A single chunk is given without a copy. To be called once. */
	take(): Buffer {
		const [first, ...others] = this.#chunks;
		if (first !== undefined && others.length === 0) return first;
		const whole = Buffer.concat(this.#chunks, this.#size);
		// The chunks of large bodies would keep the garbage collector busy most of the time.
		for (const chunk of this.#chunks) if (chunk.byteLength === chunk.buffer.byteLength) release(chunk);
		return whole;
	}
}

/** Whether a Content-Encoding field says gzip rather than nothing; codings have no case (RFC 9110, section 8.4.1). */
function isGzip(contentEncoding: string | undefined): boolean {
	const coding = contentEncoding?.trim().toLowerCase() ?? "";
	if (coding === "" || coding === "identity") return false;
	if (coding === "gzip" || coding === "x-gzip") return true;
	throw new ServiceError("unsupported_media_type", "The content coding is not supported: use gzip or none");
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
