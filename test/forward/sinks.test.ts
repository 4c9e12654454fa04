import { describe, expect, test } from "vitest";
import { isAllowed } from "../../src/forward/broker-settings.ts";
import { HttpSink, type SentMessage } from "../../src/forward/http-sink.ts";
import { type Broker, Sinks } from "../../src/forward/sinks.ts";
import { Receiver } from "./receiver.ts";

const MESSAGE: SentMessage = { contentType: "application/json", body: "{}", conversationId: "a" };
const to = (url: string, owner = "") => ({ url, owner });
const never = new AbortController().signal;

test("a message goes to the sink of its address, and an address is refused whose servers are not configured", async () => {
	await using receiver = await Receiver.start();
	const published: string[] = [];
	let disposed = false;
	const nats: Broker = {
		places: [],
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
		expect(await sinks.send(to("nats:agents.a"), MESSAGE, {}, never)).toMatchObject({ error: "", answer: "stored" });
		expect(await sinks.send(to("kafka:agents"), MESSAGE, {}, never)).toMatchObject({
			error: "FORWARD_KAFKA is not set",
		});
		expect(await sinks.send(to(receiver.url, "red"), MESSAGE, {}, never)).toMatchObject({ status: 200, error: "" });
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

describe("an endpoint may forward to what its owner has in the list", () => {
	const LISTED = ["agents.>", "red.*.a@red", "red.>@red", "blue@blue"].map((entry) => {
		const [pattern = "", owner] = entry.split("@");
		return { pattern, owner };
	});

	test.each([
		["agents.a", "", true],
		["agents.a.b", "", true],
		["agents", "", false],
		["other", "", false],
		["red.a", "", true],
		["red.a", "red", true],
		["red.b.a", "red", true],
		["red", "red", false],
		["redder.a", "red", false],
		["red.a", "blue", false],
		["agents.a", "red", false],
		["blue", "blue", true],
		["blue.a", "blue", false],
		["blue", "green", false],
	])("%s of the owner %j: %s", (name, owner, allowed) => {
		expect(isAllowed(LISTED, name, owner)).toBe(allowed);
	});

	test("a star is one token", () => {
		const places = [{ pattern: "a.*.c", owner: "red" }];
		expect(["a.b.c", "a.c", "a.b.b.c", "b.b.c"].map((name) => isAllowed(places, name, "red"))).toEqual([
			...[true, false, false, false],
		]);
	});

	test("without a list, those without an owner may forward to all, and others to none", () => {
		expect([isAllowed([], "a", ""), isAllowed([], "a", "red")]).toEqual([true, false]);
	});

	test("nothing is sent to what the list does not have, and the reason names it", async () => {
		const published: string[] = [];
		const kafka: Broker = {
			places: [{ pattern: "red", owner: "red" }],
			publish: async (topic) => {
				published.push(topic);
				return "stored";
			},
			[Symbol.asyncDispose]: async () => undefined,
		};
		await using sinks = new Sinks(new HttpSink({ allowsInside: true, userAgent: "test/1" }), { "kafka:": kafka });
		const sent = [to("kafka:red", "red"), to("kafka:red"), to("kafka:red", "blue"), to("kafka:blue")];
		const errors: string[] = [];
		for (const one of sent) errors.push((await sinks.send(one, MESSAGE, {}, never)).error);
		const denials = [
			"FORWARD_KAFKA_TOPICS has no entry for the topic red and the owner blue",
			"FORWARD_KAFKA_TOPICS has no entry for the topic blue",
		];
		expect([errors, published]).toEqual([
			["", "", ...denials],
			["red", "red"],
		]);
		expect(sent.map((one) => sinks.denialOf(one))).toEqual([undefined, undefined, ...denials]);
		expect(sinks.denialOf(to("https://a/", "blue"))).toBe(undefined);
	});
});
