import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import type { Poster } from "../../src/store/owners.ts";
import type { Store } from "../../src/store/store.ts";
import { appendEvents, batch, event } from "./event-samples.ts";
import { append, sample, second, start } from "./samples.ts";

type Counts = readonly [posts: bigint, records: bigint, events: bigint];

/** Tests of what the store keeps of senders. */
export function senderConformance(store: () => Store): void {
	const agent: Poster = { sender: "agent", owner: undefined };
	const ofTeam: Poster = { sender: "agent", owner: "team" };
	const at = (seconds: number) => start + BigInt(seconds) * second;

	/** Posts a record at a time. */
	async function post(poster: Poster, seconds: number, conversationId: string = randomUUID()) {
		return await append(store(), { ...sample({ conversationId, receivedAt: at(seconds) }), poster });
	}

	/** Returns the totals of a sender: the times of its first and last post, and the numbers of posts, records and events. */
	const totals = (
		sender: string,
		owner: string,
		[first = 0, last = 0]: number[],
		[posts, records, events]: Counts,
	) => ({
		...{ sender, owner, firstPostAt: at(first), lastPostAt: at(last), posts, records, events },
	});

	describe("senders", () => {
		it("have the totals of their posts that stored something, by owner", async () => {
			const id = randomUUID();
			const events = [event({}), event({}), event({})];
			const posted = sample({ conversationId: id, receivedAt: at(10) });
			await append(store(), { ...posted, poster: agent });
			await append(store(), { ...posted, receivedAt: at(500), poster: agent });
			await appendEvents(store(), { ...batch(id, events.slice(0, 2), { receivedAt: at(20) }), poster: agent });
			await appendEvents(store(), { ...batch(id, events, { receivedAt: at(90) }), poster: agent });
			await appendEvents(store(), { ...batch(id, events, { receivedAt: at(600) }), poster: agent });
			await post(ofTeam, 30);
			await post(ofTeam, 5);
			await post({ sender: "other", owner: "team" }, 40);
			await append(store(), sample());
			const { senders } = await store().listSenders();
			expect(senders).toEqual([
				{ ...totals("agent", "", [10, 90], [3n, 1n, 3n]), usualInterval: 40n * second },
				{ ...totals("agent", "team", [5, 30], [2n, 2n, 0n]), usualInterval: 0n },
				{ ...totals("other", "team", [40, 40], [1n, 1n, 0n]), usualInterval: 0n },
			]);
			expect((await store().listSenders("team")).senders).toEqual(senders.slice(1));
			expect((await store().listSenders("agent")).senders).toEqual([]);
		});

		it("have the mean interval of their last posts, in which a pause counts as an hour", async () => {
			const intervals: bigint[] = [];
			let time = 0;
			for (const pause of [60, 60, 86_400, ...Array.from({ length: 60 }, () => 60)]) {
				await post(agent, time);
				time += pause;
				const [found] = (await store().listSenders()).senders;
				intervals.push((found?.usualInterval ?? 0n) / second);
			}
			expect(intervals.slice(0, 5)).toEqual([0n, 60n, 60n, 1240n, 945n]);
			expect(intervals.at(-1)).toBeLessThan(120n);
		});

		it("are counted once for each of many posts that share a transaction", async () => {
			await Promise.all(Array.from({ length: 50 }, (_, n) => post(n % 2 === 0 ? agent : ofTeam, n)));
			const { senders } = await store().listSenders();
			expect(senders).toMatchObject([
				{ owner: "", firstPostAt: at(0), lastPostAt: at(48), posts: 25n, records: 25n },
				{ owner: "team", firstPostAt: at(1), lastPostAt: at(49), posts: 25n, records: 25n },
			]);
		});

		it("have the numbers of running conversations that they posted first", async () => {
			const [mine = "", ours = "", other = ""] = [1, 2, 3].map(() => randomUUID());
			const post = (conversationId: string, poster: Poster | undefined, status: string, seconds: number) =>
				append(store(), {
					...sample({ conversationId, receivedAt: at(seconds), columns: { status, updatedAt: at(seconds) } }),
					poster,
				});
			await post(mine, agent, "running", 1);
			await post(ours, ofTeam, "idle", 2);
			await post(ours, { sender: "second", owner: "team" }, "running", 3);
			await post(other, undefined, "running", 4);
			const running = [
				{ sender: "agent", owner: "", count: 1n },
				{ sender: "agent", owner: "team", count: 1n },
			];
			const byOwner = async (owner?: string) =>
				(await store().listSenders(owner)).running.toSorted((a, b) => (a.owner < b.owner ? -1 : 1));
			expect(await byOwner()).toEqual(running);
			expect(await byOwner("team")).toEqual(running.slice(1));
			await post(mine, agent, "idle", 5);
			expect(await byOwner()).toEqual(running.slice(1));
		});

		it("have posts that were repeated added to their totals", async () => {
			await post(agent, 0);
			await post(agent, 60);
			const repeats = [totals("agent", "", [30, 180], [3n, 0n, 0n]), totals("new", "", [20, 40], [2n, 0n, 0n])];
			await store().addRefusals({ refusals: [], repeats, keptSince: at(0) });
			const agents = totals("agent", "", [0, 180], [5n, 2n, 0n]);
			const [, own] = repeats;
			expect((await store().listSenders()).senders).toEqual([
				{ ...agents, usualInterval: 45n * second },
				{ ...own, usualInterval: 0n },
			]);
		});

		it("have their refusals added up by kind and period, until they are old", async () => {
			const refused = (owner: string, seconds: number, kind: string, count: bigint) => ({
				...{ sender: "agent", owner, since: at(seconds), kind, count },
			});
			const old = refused("", 0, "invalid_record", 5n);
			await store().addRefusals({
				refusals: [old, refused("team", 300, "too_large", 1n)],
				repeats: [],
				keptSince: at(0),
			});
			await store().addRefusals({ refusals: [refused("team", 300, "too_large", 2n)], repeats: [], keptSince: at(0) });
			const sum = refused("team", 300, "too_large", 3n);
			expect((await store().listSenders()).refusals).toEqual([old, sum]);
			expect((await store().listSenders("team")).refusals).toEqual([sum]);
			await store().addRefusals({ refusals: [], repeats: [], keptSince: at(1) });
			expect((await store().listSenders()).refusals).toEqual([sum]);
		});
	});
}
