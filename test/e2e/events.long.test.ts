import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SecretsMode } from "../../gen/conversations/v1/conversation_service_pb.js";
import { ServiceProcess } from "../support/child.ts";
import { ENGINES, type EngineDatabases } from "../support/engines.ts";
import { allEvents, eventJson } from "../support/event-clients.ts";
import { Random } from "../support/random.ts";
import { KEY, startTestService } from "../support/service.ts";
import { ENV, isDeleting, read, send, sequences } from "./captured-posts.ts";

describe.each(ENGINES)("with $engine", ({ open }) => {
	let databases: EngineDatabases;
	beforeAll(async () => {
		databases = await open();
	});
	afterAll(() => databases[Symbol.asyncDispose]());

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
