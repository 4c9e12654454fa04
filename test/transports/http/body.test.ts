import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { constants, gzipSync } from "node:zlib";
import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { ServiceError } from "../../../src/errors.ts";
import { readBody } from "../../../src/transports/http/body.ts";
import { RawHttp } from "../../support/raw-http.ts";

const limit = 64 * 1024;
const tooLarge = { failure: "too_large", message: `The body is larger than ${limit} bytes` };
const damaged = { failure: "invalid_argument", message: "The gzip data is damaged" };

/** Result of readBody for each request, in order, for tests in which the client cannot read a response. */
let outcomes: (Buffer | Error)[] = [];
let outcome = Promise.withResolvers<void>();
/** If set, called with each request. Its body is read after the promise has resolved. */
let prepare: ((request: IncomingMessage) => Promise<void> | undefined) | undefined;
let server: Server;
let http: string;

async function answer(request: IncomingMessage): Promise<unknown> {
	const prepared = prepare?.(request);
	if (prepared !== undefined) {
		await prepared;
	}
	try {
		const body = await readBody(request, limit, () => undefined);
		outcomes.push(body);
		return { body: body.toString("base64") };
	} catch (error) {
		outcomes.push(error instanceof Error ? error : new Error("not an error"));
		return error instanceof ServiceError ? { failure: error.kind, message: error.message } : { failure: "other" };
	} finally {
		outcome.resolve();
	}
}

beforeAll(async () => {
	server = createServer((request, response) => {
		answer(request).then((result) => response.end(JSON.stringify(result)));
	});
	await once(server.listen(0, "127.0.0.1"), "listening");
	const address: AddressInfo | string | null = server.address();
	http = `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
});

beforeEach(() => {
	outcomes = [];
	outcome = Promise.withResolvers<void>();
	prepare = undefined;
});

afterAll(async () => {
	server.closeAllConnections();
	server.close();
	await once(server, "close");
});

/** Returns what the server answers to a request of a client. */
async function answerTo(client: RawHttp): Promise<unknown> {
	return JSON.parse((await client.response()).body);
}

/** Posts a body in one piece. Returns the response. */
async function post(body: Buffer, fields: Record<string, string> = {}): Promise<unknown> {
	using client = new RawHttp({ http });
	await client.head({ "Content-Length": String(body.length), ...fields });
	await client.write(body);
	return await answerTo(client);
}

function accepted(body: Buffer): unknown {
	return { body: body.toString("base64") };
}

/** Cuts data into pieces of the given sizes; the rest is the last piece. No piece is empty. */
function cut(data: Buffer, sizes: readonly number[]): Buffer[] {
	const pieces: Buffer[] = [];
	let rest = data;
	for (const size of sizes) {
		pieces.push(rest.subarray(0, size));
		rest = rest.subarray(size);
	}
	return [...pieces, rest].filter((piece) => piece.length > 0);
}

describe("without a content coding", () => {
	test("a body up to the limit is returned, a larger one is refused", async () => {
		const largest = randomBytes(limit);
		expect(await post(largest)).toEqual(accepted(largest));
		expect(await post(Buffer.alloc(limit + 1))).toEqual(tooLarge);
		expect(await post(Buffer.alloc(0))).toEqual(accepted(Buffer.alloc(0)));
		expect(await post(Buffer.from("{}"), { "Content-Encoding": " Identity " })).toEqual(accepted(Buffer.from("{}")));
	});

	test("a request without a body has an empty one", async () => {
		using client = new RawHttp({ http });
		await client.head({});
		expect(await answerTo(client)).toEqual(accepted(Buffer.alloc(0)));
	});

	test("a Content-Length over the limit is refused before any byte of the body", async () => {
		using client = new RawHttp({ http });
		await client.head({ "Content-Length": String(limit + 1) });
		expect(await answerTo(client)).toEqual(tooLarge);
	});

	test("a chunked body is refused as soon as it exceeds the limit", async () => {
		using client = new RawHttp({ http });
		await client.head({ "Transfer-Encoding": "chunked" });
		await client.chunk(Buffer.alloc(limit));
		await client.chunk(Buffer.alloc(1));
		expect(await answerTo(client)).toEqual(tooLarge);
	});
});

describe("with gzip", () => {
	test.each(["gzip", "x-gzip", "GZIP"])("%s is decompressed up to the limit", async (coding) => {
		const fields = { "Content-Encoding": coding };
		const largest = randomBytes(limit);
		expect(await post(gzipSync(largest), fields)).toEqual(accepted(largest));
		expect(await post(gzipSync(Buffer.alloc(limit + 1)), fields)).toEqual(tooLarge);
		expect(await post(gzipSync(Buffer.alloc(0)), fields)).toEqual(accepted(Buffer.alloc(0)));
	});

	test("a body that decompresses to a thousand times the limit is refused", async () => {
		const bomb = gzipSync(Buffer.alloc(1000 * limit));
		expect(bomb.length).toBeLessThan(limit);
		expect(await post(bomb, { "Content-Encoding": "gzip" })).toEqual(tooLarge);
	});

	test("gzip data that decompresses to nothing is refused when it is too long", async () => {
		using client = new RawHttp({ http });
		await client.head({ "Transfer-Encoding": "chunked", "Content-Encoding": "gzip" });
		const emptyMember = gzipSync(Buffer.alloc(0));
		await client.chunk(Buffer.concat(Array.from({ length: (2 * limit) / emptyMember.length }, () => emptyMember)));
		expect(await answerTo(client)).toEqual(tooLarge);
	});

	test("a Content-Length too large even for compressed data is refused before any byte of the body", async () => {
		using client = new RawHttp({ http });
		await client.head({ "Content-Length": String(2 * limit), "Content-Encoding": "gzip" });
		expect(await answerTo(client)).toEqual(tooLarge);
	});

	test("several gzip members make up one body, and zeros may follow them", async () => {
		const members = [gzipSync("[1,"), gzipSync("2]"), Buffer.alloc(100)];
		expect(await post(Buffer.concat(members), { "Content-Encoding": "gzip" })).toEqual(accepted(Buffer.from("[1,2]")));

		using client = new RawHttp({ http });
		await client.head({ "Transfer-Encoding": "chunked", "Content-Encoding": "gzip" });
		for (const data of [gzipSync("{}"), Buffer.alloc(1000), Buffer.alloc(1000)]) {
			await client.chunk(data);
		}
		await client.chunk(Buffer.alloc(0));
		expect(await answerTo(client)).toEqual(accepted(Buffer.from("{}")));
		await client.head({ "Content-Length": "0" });
		expect(await answerTo(client)).toEqual(accepted(Buffer.alloc(0)));
	});

	const compressed = gzipSync('{"a":1}');
	test.each([
		["nothing at all", Buffer.alloc(0)],
		["data that is not gzip", Buffer.from("{}")],
		["data that is cut off", compressed.subarray(0, -1)],
		["a wrong checksum", Buffer.concat([compressed.subarray(0, -8), Buffer.alloc(8)])],
		["garbage after it", Buffer.concat([compressed, Buffer.from("garbage")])],
	])("damaged data (%s) is refused", async (_, body) => {
		expect(await post(body, { "Content-Encoding": "gzip" })).toEqual(damaged);
	});
});

test.each(["br", "deflate", "gzip, gzip", "zstd"])("the content coding %s is refused", async (coding) => {
	expect(await post(Buffer.from("{}"), { "Content-Encoding": coding })).toEqual({
		failure: "unsupported_media_type",
		message: "The content coding is not supported: use gzip or none",
	});
});

test("with any chunks the body is returned exactly, and the connection serves the next request", async () => {
	using client = new RawHttp({ http });
	const sizes = fc.array(fc.integer({ min: 1, max: 3000 }), { maxLength: 8 });
	const data = fc.uint8Array({ maxLength: 12_000 }).map((bytes) => Buffer.from(bytes));
	const level = fc.constantFrom(constants.Z_NO_COMPRESSION, constants.Z_BEST_COMPRESSION);
	await fc.assert(
		fc.asyncProperty(data, sizes, fc.option(level), fc.boolean(), async (body, sizes, level, chunked) => {
			const sent = level === null ? body : gzipSync(body, { level });
			await client.head({
				...(level === null ? {} : { "Content-Encoding": "gzip" }),
				...(chunked ? { "Transfer-Encoding": "chunked" } : { "Content-Length": String(sent.length) }),
			});
			for (const piece of cut(sent, sizes)) {
				await (chunked ? client.chunk(piece) : client.write(piece));
			}
			if (chunked) {
				await client.chunk(Buffer.alloc(0));
			}
			expect(await answerTo(client)).toEqual(accepted(body));
		}),
		{ numRuns: 200 },
	);
});

describe("the unread rest of a body", () => {
	test.each([
		["a Content-Length over the limit", { "Content-Length": String(limit * 8) }],
		["an unknown coding", { "Content-Length": String(limit * 8), "Content-Encoding": "br" }],
		["damaged gzip", { "Content-Length": String(limit), "Content-Encoding": "gzip" }],
	])("is discarded if it is small, and the connection serves the next request (%s)", async (_, fields) => {
		using client = new RawHttp({ http });
		await client.head(fields);
		await client.write(Buffer.alloc(Number(fields["Content-Length"]), "x"));
		expect(await answerTo(client)).toMatchObject({ failure: expect.any(String) });
		await client.head({ "Content-Length": "2" });
		await client.write("{}");
		expect(await answerTo(client)).toEqual(accepted(Buffer.from("{}")));
	});

	test.each([
		["a body over the limit", {}, Buffer.from("x")],
		["data that is not gzip", { "Content-Encoding": "gzip" }, Buffer.from("x")],
		["an unknown coding", { "Content-Encoding": "br" }, Buffer.from("x")],
		["zeros after gzip data", { "Content-Encoding": "gzip" }, gzipSync("{}")],
	])("closes the connection if it is endless (%s)", async (_, fields, start) => {
		using client = new RawHttp({ http });
		await client.head({ "Transfer-Encoding": "chunked", ...fields });
		await client.chunk(Buffer.concat([start, Buffer.alloc(1)]));
		while (client.open) {
			await client.chunk(Buffer.alloc(limit));
		}
		await outcome.promise;
		expect(outcomes).toEqual([expect.any(ServiceError)]);
	});
});

describe("when the client disconnects", () => {
	const names = () => outcomes.map((each) => (each instanceof Error ? each.name : "a body"));

	test.each([
		["plain", {}],
		["gzip", { "Content-Encoding": "gzip" }],
	])("reading ends with an AbortError (%s)", async (_, fields) => {
		const client = new RawHttp({ http });
		await client.head({ "Content-Length": "100", ...fields });
		await client.write(gzipSync("{}"));
		client.reset();
		await outcome.promise;
		expect(names()).toEqual(["AbortError"]);
	});

	test("reading that begins afterwards ends with an AbortError", async () => {
		prepare = (request) => {
			arrived.resolve();
			return new Promise((resolve) => request.once("close", resolve));
		};
		const arrived = Promise.withResolvers<void>();
		const client = new RawHttp({ http });
		await client.head({ "Content-Length": "100" });
		await arrived.promise;
		client.reset();
		await outcome.promise;
		expect(names()).toEqual(["AbortError"]);
	});
});

test("a body that arrives in one chunk is not copied", async () => {
	const chunks: Buffer[] = [];
	prepare = (request) => {
		request.on("data", (chunk: Buffer) => chunks.push(chunk));
		return undefined;
	};
	await post(Buffer.from('{"a":1}'));
	expect(chunks).toHaveLength(1);
	expect(outcomes[0]).toBe(chunks[0]);
});
