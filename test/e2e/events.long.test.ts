import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SecretsMode } from "../../gen/conversations/v1/conversation_service_pb.js";
import { ServiceProcess } from "../support/child.ts";
import { postWebhook } from "../support/clients.ts";
import { ENGINES, type EngineDatabases } from "../support/engines.ts";
import { allEvents, eventJson, postEvents } from "../support/event-clients.ts";
import { object, record } from "../support/fixtures.ts";
import { Random } from "../support/random.ts";
import { KEY, startTestService } from "../support/service.ts";
import { ENV, expectSuccess, isDeleting, read, send, sequences } from "./captured-posts.ts";

describe.each(ENGINES)("with $engine", ({ open }) => {
	let databases: EngineDatabases;
	beforeAll(async () => {
		databases = await open();
	});
	afterAll(() => databases[Symbol.asyncDispose]());

	test.each<[string, readonly string[], string]>([
		["in the next batch", [], "01:20"],
		// The record is cached from its second update on.
		["after further updates", ["02:40", "02:50"], "01:20"],
		["when the event before it in the log is older", ["02:55", "01:10"], "01:20"],
		["unless what is stored is later than both", ["03:10"], "00:20"],
	])("of a local time that occurs twice, the instant keeps the order of what is stored, %s", async (_, more, utc) => {
		await using berlin = await startTestService({ EVENT_TIME_ZONE: "Europe/Berlin", ...(await databases.create()) });
		const sent = record({ created_at: "2026-10-24T00:00:00Z", updated_at: "2026-10-24T00:00:00Z" });
		await expectSuccess(await postWebhook(berlin, KEY, JSON.stringify(sent)));
		const post = async (time: string, value: string) => {
			const event = { id: `${time} ${value}`, timestamp: `2026-10-25T${time}:00`, source: "environment" };
			const update = { ...event, kind: "ConversationStateUpdateEvent", key: "execution_status", value };
			await expectSuccess(await postEvents(berlin, KEY, String(sent.id), JSON.stringify([update])));
		};
		// All in batches of their own that arrive a month later. 02:55 is in summer time, and 02:20 may be after it.
		const before = more.includes("02:55") ? more : [...more, "02:55"];
		for (const time of before) await post(time, "paused");
		await post("02:20", "finished");
		const entries = await allEvents(berlin, KEY, { conversationId: String(sent.id) });
		const time = new Date(Number(entries.at(-1)?.happenedAt?.seconds ?? 0n) * 1000).toISOString();
		const status = utc === "01:20" ? "finished" : "paused";
		expect([time, object(await read(berlin, String(sent.id))).execution_status]).toEqual([
			`2026-10-25T${utc}:00.000Z`,
			status,
		]);
	});

	describe("the posts of a captured sequence", () => {
		test("of these sequences leave the same records and events when they are reordered, repeated and cut off by SIGKILL", {
			timeout: 240_000,
		}, async () => {
			await using inOrder = await startTestService(ENV);
			for (const { conversationId, posts } of sequences)
				for (const post of posts) if (!isDeleting(post)) await send(inOrder, conversationId, post);

			const env = { ...ENV, ...(await databases.create()) };
			const random = Random.ofTest();
			// Each post is sent once or more, in any order. A post without a response is sent again after the restart.
			let waiting = sequences.flatMap(({ conversationId, posts }) =>
				posts
					.filter((post) => !isDeleting(post))
					.flatMap((post) => Array.from({ length: random.integer(1, 3) }, () => ({ conversationId, post }))),
			);
			while (waiting.length > 0) {
				await using killed = await ServiceProcess.start("", env);
				random.shuffle(waiting);
				const enough = random.integer(20, 120);
				const unanswered: typeof waiting = [];
				let answered = 0;
				const lanes = Array.from({ length: 4 }, async () => {
					for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
						try {
							await send(killed, next.conversationId, next.post);
							answered += 1;
							if (answered === enough) killed.signal("SIGKILL");
						} catch (error) {
							if (answered < enough) throw error;
							unanswered.push(next);
							return;
						}
					}
				});
				await Promise.all(lanes);
				waiting = [...waiting, ...unanswered];
			}
			await using restarted = await ServiceProcess.start("", env);
			for (const { conversationId, name } of sequences) {
				const expected = await read(inOrder, conversationId);
				expect({ name, record: await read(restarted, conversationId) }).toEqual({ name, record: expected });
				const [kept, wanted] = await Promise.all(
					[restarted, inOrder].map(async (one) => {
						const events = await allEvents(one, KEY, { conversationId, secrets: SecretsMode.PLAINTEXT });
						return events.map(({ event }) => JSON.stringify(eventJson(event))).sort();
					}),
				);
				expect(kept).toEqual(wanted);
			}
		});
	});
});
