import type { LookupAddress } from "node:dns";
import { once } from "node:events";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { guardedLookup, HttpSink, type HttpSinkOptions, isInside } from "../../src/forward/http-sink.ts";
import { Certificates } from "../support/certificates.ts";
import { type Answering, Receiver } from "./receiver.ts";

const MESSAGE = { contentType: "application/json", body: '{"type":"test"}' };
const INSIDE = "the address is private, loopback or link-local (FORWARD_PRIVATE=on allows it)";

async function send(url: string, options: Partial<HttpSinkOptions> = {}) {
	using sink = new HttpSink({ allowsInside: true, userAgent: "test/1", ...options });
	return await sink.send(url, MESSAGE, { "webhook-id": "1" }, new AbortController().signal);
}

/** Sends to a receiver that answers in some way. */
async function answered(answer: Answering, options: Partial<HttpSinkOptions> = {}) {
	await using receiver = await Receiver.start();
	receiver.answer = answer;
	return await send(receiver.url, options);
}

test("a message arrives as it is, and the first KiB of the answer is kept", async () => {
	await using receiver = await Receiver.start();
	receiver.answer = (_, response) => void response.writeHead(202).end("x".repeat(5000));
	expect(await send(receiver.url)).toEqual({ status: 202, error: "", answer: "x".repeat(1024), retryAfter: undefined });
	expect(receiver.received).toMatchObject([
		{ body: MESSAGE.body, headers: { "webhook-id": "1", "content-type": "application/json", "user-agent": "test/1" } },
	]);
});

describe("hostile receivers", () => {
	test("500", async () => {
		expect(await answered((_, response) => void response.writeHead(500).end("broken"))).toEqual({
			...{ status: 500, error: "the status is 500", answer: "broken", retryAfter: undefined },
		});
	});

	test("429 with Retry-After, as seconds and as a date", async () => {
		const seconds = await answered((_, response) => void response.writeHead(429, { "Retry-After": "7" }).end());
		expect(seconds).toMatchObject({ status: 429, retryAfter: 7000 });
		const date = new Date(Date.now() + 3_600_000).toUTCString();
		const { retryAfter } = await answered((_, response) => void response.writeHead(503, { "Retry-After": date }).end());
		expect(retryAfter).toBeGreaterThan(3_000_000);
		expect(retryAfter).toBeLessThanOrEqual(3_600_000);
	});

	test("a redirect to a private address is not followed", async () => {
		await using inner = await Receiver.start();
		const answer = await answered((_, response) => void response.writeHead(307, { Location: inner.url }).end());
		expect(answer).toMatchObject({ status: 307, error: "a redirect, which is not followed" });
		expect(inner.received).toEqual([]);
	});

	test("private addresses are refused in every form, before anything is sent", async () => {
		await using receiver = await Receiver.start();
		const { port } = new URL(receiver.url);
		const hosts = [
			"127.0.0.1",
			"2130706433",
			"0x7f.1",
			"0177.0.0.1",
			"localhost",
			"[::ffff:127.0.0.1]",
			"[::1]",
			"0.0.0.0",
		];
		for (const host of hosts)
			expect([host, await send(`http://${host}:${port}/`, { allowsInside: false })]).toEqual([
				host,
				{ status: 0, error: INSIDE, answer: "", retryAfter: undefined },
			]);
		expect(receiver.received).toEqual([]);
	});

	test("a name that changes its address is refused at the connection, however it was judged before", async () => {
		await using receiver = await Receiver.start();
		const { port } = new URL(receiver.url);
		const answers: LookupAddress[][] = [
			[
				{ address: "93.184.216.34", family: 4 },
				{ address: "127.0.0.1", family: 4 },
			],
			[{ address: "127.0.0.1", family: 4 }],
		];
		const resolve: HttpSinkOptions["resolve"] = (_, __, callback) => callback(null, answers.shift() ?? []);
		using sink = new HttpSink({ allowsInside: false, userAgent: "test/1", resolve });
		for (let n = 0; n < 2; n++) {
			const answer = await sink.send(`http://name.example:${port}/`, MESSAGE, {}, new AbortController().signal);
			expect(answer).toMatchObject({ status: 0, error: INSIDE });
		}
		expect(receiver.received).toEqual([]);
	});

	test("an answer that comes byte by byte is not waited for: its status says that the message was taken", async () => {
		let timer: NodeJS.Timeout | undefined;
		const answer = await answered((_, response) => {
			response.writeHead(200);
			timer = setInterval(() => response.write("x"), 20);
		});
		clearInterval(timer);
		expect(answer).toEqual({ status: 200, error: "", answer: expect.stringMatching(/^x+$/), retryAfter: undefined });
	});

	test("no answer at all ends after the time", async () => {
		expect(await answered(() => undefined, { timeout: 300 })).toMatchObject({
			status: 0,
			error: "no answer in time",
		});
	});

	test("an endless body is read to its first 64 KiB", async () => {
		let written = 0;
		let closed = false;
		const answer = await answered((_, response) => {
			response.on("close", () => {
				closed = true;
			});
			response.writeHead(200);
			const go = () => {
				while (!closed && response.write("y".repeat(1024))) written += 1;
				if (!closed) response.once("drain", go);
			};
			go();
		});
		expect(answer).toEqual({ status: 200, error: "", answer: "y".repeat(1024), retryAfter: undefined });
		await vi.waitFor(() => expect(closed).toBe(true));
		expect(written).toBeGreaterThan(0);
	});

	test.each([
		[200, ""],
		[429, "the status is 429"],
		[503, "the status is 503"],
	])("an answer with the status %i that is closed in the middle is one", async (status, error) => {
		const answer = await answered((_, response) => {
			response.writeHead(status, { "Content-Length": "500", "Retry-After": "7" });
			response.write("abc", () => response.destroy());
		});
		expect(answer).toEqual({ status, error, answer: "abc", retryAfter: 7000 });
	});

	test("Retry-After with any number of digits is a number of seconds", async () => {
		const answer = await answered(
			(_, response) => void response.writeHead(503, { "Retry-After": "99999999999" }).end(),
		);
		expect(answer).toMatchObject({ status: 503, retryAfter: 99_999_999_999_000 });
	});

	test("a connection that is closed without an answer is a failure", async () => {
		expect(await answered((_, response) => void response.destroy())).toMatchObject({ status: 0, error: "ECONNRESET" });
	});

	test("a certificate of another name, or of an unknown authority, is refused", async () => {
		using certificates = new Certificates();
		const server = createTlsServer(
			{ cert: certificates.pem("stranger.crt"), key: certificates.pem("stranger.key") },
			(_, response) => response.end("ok"),
		);
		server.listen(0, "127.0.0.1");
		await once(server, "listening");
		try {
			const { port } = server.address() as AddressInfo;
			const ca = certificates.pem("ca.crt").toString();
			expect(await send(`https://localhost:${port}/`, { ca })).toMatchObject({
				...{ status: 0, error: "ERR_TLS_CERT_ALTNAME_INVALID" },
			});
			expect((await send(`https://localhost:${port}/`)).error).not.toBe("");
		} finally {
			server.closeAllConnections();
			server.close();
		}
	});
});

test("an address is judged by its text, in each spelling", () => {
	using guarded = new HttpSink({ allowsInside: false, userAgent: "test/1" });
	using open = new HttpSink({ allowsInside: true, userAgent: "test/1" });
	const host = "must have a host after http:// or https://";
	const inside = `must be outside: ${INSIDE}`;
	const judged: Readonly<Record<string, string | undefined>> = {
		"http:///x": host,
		"http:x": host,
		"https:/a.example/x": host,
		"http://a.example:0/x": "must not have the port 0",
		"http://user@a.example/": "must have no user name, no password and no fragment",
		"http://127.0.0.1/": inside,
		"http://127.1/": inside,
		"http://2130706433/": inside,
		"http://0x7f.1/": inside,
		"http://0177.0.0.1/": inside,
		"http://10.0.0.1:8080/": inside,
		"http://169.254.169.254/latest/meta-data": inside,
		"http://[::1]/": inside,
		"http://[::ffff:192.168.0.1]/": inside,
		"http://[fd00:ec2::254]/": inside,
		"http://LOCALHOST/": inside,
		"http://localhost./": inside,
		"http://a.localhost/": inside,
		"http://notlocalhost/": undefined,
		"https://a.example:8443/x?y=z": undefined,
		"http://93.184.216.34/": undefined,
	};
	const of = (sink: HttpSink) => Object.fromEntries(Object.keys(judged).map((url) => [url, sink.refusalOf(url)]));
	expect(of(guarded)).toEqual(judged);
	const allowed = Object.entries(judged).map(([url, refusal]) => [url, refusal === inside ? undefined : refusal]);
	expect(of(open)).toEqual(Object.fromEntries(allowed));
});

test("every address of a private range is inside, and its form in IPv6", () => {
	const byte = fc.integer({ min: 0, max: 255 });
	fc.assert(
		fc.property(
			fc.constantFrom("10", "127", "169.254", "192.168", "172.20"),
			fc.array(byte, { minLength: 3, maxLength: 3 }),
			(range, rest) => {
				const address = [...range.split("."), ...rest].slice(0, 4).join(".");
				expect([isInside(address), isInside(`::ffff:${address}`)]).toEqual([true, true]);
			},
		),
	);
	for (const outside of ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700:4700::1111"])
		expect(isInside(outside)).toBe(false);
	for (const inside of ["fe80::1%eth0", "fd00::1", "::", "::1", "64:ff9b::7f00:1", "224.0.0.1", "not an address"])
		expect(isInside(inside)).toBe(true);
});

test("a guarded look-up gives the addresses that it checked", async () => {
	const addresses = [{ address: "93.184.216.34", family: 4 }];
	const lookup = guardedLookup((_, __, callback) => callback(null, addresses));
	const all = await new Promise((resolve) => lookup("name", { all: true }, (_, found) => resolve(found)));
	const one = await new Promise((resolve) => lookup("name", {}, (_, address, family) => resolve([address, family])));
	expect([all, one]).toEqual([addresses, ["93.184.216.34", 4]]);
});
