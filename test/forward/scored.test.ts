import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { ConversationFilterSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import { tellingScores } from "../../src/forward/scored.ts";
import type { GivenScore } from "../../src/store/scores.ts";
import type { Store } from "../../src/store/store.ts";
import { auditEntry } from "../store/conformance-audit.ts";
import { append, sample } from "../store/samples.ts";
import { CALLER, Forwarding } from "./forwarding.ts";
import { stores } from "./stores.ts";

const [A, B] = [randomUUID(), randomUUID()];
// Deliveries are due from then on, by the clock of the test.
const audit = { ...auditEntry(0n, { action: "score.changed", subject: "" }), at: 1n };
const undone = { owner: undefined, audit: { ...audit, action: "score.deleted" } };
const changes = ["SCORED"];

function score(conversationId: string, name: string, value: number | boolean | string): GivenScore {
	const of = { conversationId, eventId: "", name, giver: "job", source: "program", comment: "canary comment" };
	if (typeof value === "string") return { ...of, kind: "category", value: undefined, category: value };
	return { ...of, kind: typeof value, value: Number(value), category: undefined };
}

function telling({ store, notices }: Forwarding, onChange = () => {}): Store {
	return tellingScores(store, { notices, onChange });
}

async function fill(store: Store): Promise<void> {
	await append(store, sample({ conversationId: A, columns: { tags: { team: "a" }, title: "mine" } }));
	await append(store, sample({ conversationId: B, columns: { tags: { team: "b" } } }));
}

describe.each(stores())("with $engine", ({ make }) => {
	test("a batch is one delivery for each conversation whose scores it changes, also after a restart", async () => {
		const open = await make();
		{
			await using forwarding = new Forwarding(await open());
			await fill(forwarding.store);
			const filter = create(ConversationFilterSchema, { tags: { team: "a" } });
			await forwarding.create("hook", { changes });
			await forwarding.create("team", { changes, filter });
			await forwarding.create("red", { changes, owner: "red" });
			await forwarding.create("other", { changes: ["STARTED"] });
			let woken = 0;
			const store = telling(forwarding, () => {
				woken += 1;
			});
			const give = (...scores: GivenScore[]) => store.setScores({ scores, owner: undefined, audit });
			expect(await give(score(A, "tests", 0.5), score(B, "tests", 1), score(A, "cause", "tool"))).toEqual(3);
			expect(await give(score(A, "tests", 0.5), score(B, "tests", 1))).toEqual(0);
			expect(await give(score(A, "tests", 0.5), score(B, "tests", 0))).toEqual(1);
			await expect(give(score(A, "tests", 2), score(randomUUID(), "tests", 1))).rejects.toThrow(
				"scores[1].conversation_id names no conversation that is stored",
			);
			const target = { conversationId: A, eventId: "", name: "cause", giver: "job" };
			expect(await store.deleteScore({ ...target, ...undone })).toBe(true);
			expect(await store.deleteScore({ ...target, ...undone })).toBe(false);
			expect(woken).toBe(3);
			const told = await forwarding.deliveries();
			const given = (name: string, value: unknown) => ({ event_id: null, name, value, giver: "job" });
			const dataOf = (conversation_id: string, text: string, ...scores: object[]) =>
				expect.objectContaining({ change: "scored", conversation_id, text, scores, summary: expect.anything() });
			expect(
				told
					.map(({ conversationId, data = "" }) => [conversationId, JSON.parse(data)])
					.sort(([one], [other]) => (one === other ? 0 : one === A ? -1 : 1)),
			).toEqual([
				[A, dataOf(A, "lost a score", given("cause", null))],
				[A, dataOf(A, "was scored", given("tests", 0.5), given("cause", "tool"))],
				[B, dataOf(B, "was scored", given("tests", 0))],
				[B, dataOf(B, "was scored", given("tests", 1))],
			]);
			expect(new Set(told.map(({ id }) => id)).size).toBe(4);
			expect(told).toMatchObject(told.map(() => ({ change: "SCORED", sequence: undefined, state: "waiting" })));
			expect(JSON.stringify(told.map(({ data }) => data))).not.toContain("canary");
			expect((await forwarding.deliveries("team")).map(({ conversationId }) => conversationId)).toEqual([A, A]);
			expect(await forwarding.deliveries("red", "red")).toEqual([]);
			expect(await forwarding.deliveries("other")).toEqual([]);
			expect(forwarding.sent).toEqual([]);
		}
		await using forwarding = new Forwarding(await open());
		forwarding.start();
		await forwarding.count(6);
		expect(forwarding.sent.filter(({ conversationId }) => conversationId === B)).toHaveLength(2);
		await forwarding.store.erase({ conversationId: A, owner: undefined, erasedAt: 1n });
		const left = (await forwarding.deliveries()).filter(({ conversationId }) => conversationId === A);
		expect(left).toEqual([]);
	});

	test("scores are given and endpoints are changed at the same time", async () => {
		await using forwarding = new Forwarding(await (await make())());
		await fill(forwarding.store);
		for (const name of ["one", "two"]) await forwarding.create(name, { changes });
		const store = telling(forwarding);
		const works = Array.from({ length: 20 }, async (_, n) => {
			const scores = [score(n % 2 === 0 ? A : B, "tests", n), score(n % 2 === 0 ? B : A, `name${n}`, n)];
			await store.setScores({ scores, owner: undefined, audit });
			const named = { name: n % 3 === 0 ? "one" : "two", owner: "" };
			await forwarding.endpoints.pause(named, CALLER);
			await forwarding.endpoints.resume(named, "position", CALLER);
		});
		await Promise.all(works);
		for (const name of ["one", "two"]) expect(await forwarding.deliveries(name)).toHaveLength(40);
	});
});
