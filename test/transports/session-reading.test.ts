import { once } from "node:events";
import { type ClientHttp2Session, connect, createServer, type Http2Stream } from "node:http2";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { readingOf } from "../../src/transports/session-reading.ts";

/** Sends a PING frame and waits for its acknowledgement. */
function ping(session: ClientHttp2Session): Promise<void> {
	return new Promise((resolve, reject) => session.ping((error) => (error === null ? resolve() : reject(error))));
}

test("a paused HTTP/2 connection is read until its bodies have arrived, and then not until it is resumed", async () => {
	const server = createServer();
	await once(server.listen(0, "127.0.0.1"), "listening");
	const address = server.address();
	const url = `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
	const [paused, other] = [connect(url), connect(url)];
	const seen: Http2Stream[] = [];
	server.on("stream", (stream) => seen.push(stream));
	const upload = paused.request({ ":method": "POST" });
	upload.write("begin ");
	await expect.poll(() => seen.length).toBe(1);
	for (const stream of seen) {
		if (stream.session === undefined) throw new Error("the connection is gone");
		const reading = readingOf(stream.session);
		expect(readingOf(stream.session)).toBe(reading);
		reading.keepReading(stream);
		reading.pause();
		const body = text(stream);
		// The rest arrives only if the server still reads the connection.
		upload.end("end");
		expect(await body).toBe("begin end");
		paused.request({ ":method": "POST" }).end();
		for (let round = 0; round < 20; round++) await ping(other);
		expect(seen).toEqual([stream]);
		reading.resume();
		await expect.poll(() => seen.length).toBe(2);
		break;
	}
	paused.destroy();
	other.destroy();
	server.close();
	await once(server, "close");
});
