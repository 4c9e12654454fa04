import { expect, test } from "vitest";
import { HttpSink, type SentMessage } from "../../src/forward/http-sink.ts";
import { type Broker, Sinks } from "../../src/forward/sinks.ts";
import { Receiver } from "./receiver.ts";

const MESSAGE: SentMessage = { contentType: "application/json", body: "{}", conversationId: "a" };
const never = new AbortController().signal;

test("a message goes to the sink of its address, and an address is refused whose servers are not configured", async () => {
	await using receiver = await Receiver.start();
	const published: string[] = [];
	let disposed = false;
	const nats: Broker = {
		publish: async (subject, { conversationId }) => {
			published.push(`nats:${subject} ${conversationId}`);
			return "stored";
		},
		[Symbol.asyncDispose]: async () => {
			disposed = true;
		},
	};
	{
		await using sinks = new Sinks(new HttpSink({ allowsInside: true, userAgent: "test/1" }), { "nats:": nats });
		expect(await sinks.send("nats:agents.a", MESSAGE, {}, never)).toMatchObject({ error: "", answer: "stored" });
		expect(await sinks.send("kafka:agents", MESSAGE, {}, never)).toMatchObject({ error: "FORWARD_KAFKA is not set" });
		expect(await sinks.send(receiver.url, MESSAGE, {}, never)).toMatchObject({ status: 200, error: "" });
		expect([published, receiver.received.length]).toEqual([["nats:agents.a a"], 1]);
		const refusals = [
			...[
				"nats:agents.run_1",
				"nats:$JS.API.STREAM.DELETE.a",
				"nats:a.*",
				"nats:a.>",
				"nats://other:4222/a",
				"nats:a?b",
			],
			...["kafka:agents", "ftp://a", "https://user@a/", "https://a/"],
		].map((url) => [url, sinks.refusalOf(url)]);
		const subject = "must be nats: and the name of a subject";
		expect(Object.fromEntries(refusals)).toEqual({
			"nats:agents.run_1": undefined,
			"nats:$JS.API.STREAM.DELETE.a": subject,
			"nats:a.*": subject,
			"nats:a.>": subject,
			"nats://other:4222/a": subject,
			"nats:a?b": subject,
			"kafka:agents": "needs FORWARD_KAFKA, which names the servers",
			"ftp://a": "must be an http, https, nats or kafka URL",
			"https://user@a/": "must have no user name, no password and no fragment",
			"https://a/": undefined,
		});
	}
	expect(disposed).toBe(true);
});
