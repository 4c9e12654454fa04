import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import { bytesOf, idsFrom, type RefusedPostRow } from "../../src/store/refused-posts.ts";
import type { Store } from "../../src/store/store.ts";
import { appendEvents, batch, event } from "./event-samples.ts";
import { append, sample, second, start } from "./samples.ts";

/** Returns a refused post that arrived some seconds after the start. */
export function refusedPost(seconds: number, replaced: Partial<RefusedPostRow> = {}): RefusedPostRow {
	const receivedAt = start + BigInt(seconds) * second;
	return {
		...{ id: idsFrom(receivedAt) + 7n, receivedAt },
		...{ sender: "agent", owner: undefined, route: "/route", form: "events_json" },
		...{ kind: "invalid_record", reasons: '[{"place":"body[0]\\u0000"}]', conversationId: randomUUID(), size: 5 },
		...{ accepted: false, retriedAt: undefined, body: Buffer.from("bytes") },
		...replaced,
	};
}

/** Returns a post as lists have it. */
function listed({ body, ...post }: RefusedPostRow) {
	return { ...post, hasBody: body !== undefined };
}

/** Tests of the refused posts that the store keeps. */
export function refusedPostConformance(current: () => Store, reopen: () => Promise<Store>): void {
	const keep = (post: RefusedPostRow, maxBytes = 2 ** 20) => current().keepRefusedPost({ post, maxBytes });
	const all = async () => (await current().listRefusedPosts({ limit: 1000 })).map(({ id }) => id);

	describe("refused posts", () => {
		it("are listed by id and returned with their bodies, also after the store was opened again", async () => {
			const own = refusedPost(2, { owner: "team", body: undefined, retriedAt: start, form: "record_message" });
			const accepted = refusedPost(3, { accepted: true, size: 2 ** 33 });
			const unknown = refusedPost(1, { conversationId: undefined });
			for (const post of [own, accepted, unknown]) await keep(post);
			const newestFirst = [accepted, own, unknown].map(listed);
			expect(await current().listRefusedPosts({ limit: 10 })).toEqual(newestFirst);
			expect(await current().listRefusedPosts({ limit: 1, before: accepted.id })).toEqual(newestFirst.slice(1, 2));
			expect(await current().listRefusedPosts({ limit: 10, owner: "team" })).toEqual(newestFirst.slice(1, 2));
			expect(await current().listRefusedPosts({ limit: 10, after: 0n })).toEqual([unknown, accepted].map(listed));
			expect(await current().listRefusedPosts({ limit: 10, after: unknown.id, owner: "team" })).toEqual([]);
			const reopened = await reopen();
			const found = await reopened.getRefusedPost({ id: accepted.id });
			expect({ ...found, body: Buffer.from(found?.body ?? []).toString() }).toEqual({ ...accepted, body: "bytes" });
			expect(await reopened.getRefusedPost({ id: own.id, owner: "team" })).toEqual(own);
			expect(await reopened.getRefusedPost({ id: own.id, owner: "other" })).toBeUndefined();
			expect(await reopened.getRefusedPost({ id: accepted.id, owner: "team" })).toBeUndefined();
			const sum = [own, accepted, unknown].reduce((bytes, post) => bytes + bytesOf(post), 0);
			expect(await reopened.refusedUsage()).toEqual({ posts: 3, bytes: sum });
		});

		it("keep their new reasons, and are removed once they are taken in", async () => {
			const [one, two] = [refusedPost(1), refusedPost(2)];
			await keep(one);
			await keep(two);
			const again = { id: one.id, kind: "data_loss", reasons: "[]", retriedAt: start + 9n };
			await current().setRefusedReasons(again);
			await current().removeRefusedPost(two.id);
			expect(await current().listRefusedPosts({ limit: 10 })).toEqual([listed({ ...one, ...again })]);
		});

		it("take limited room, in which the oldest make place for others, but never an accepted one", async () => {
			const body = Buffer.alloc(10_000);
			const of = (seconds: number) => refusedPost(seconds, { body });
			const maxBytes = 4 * bytesOf(of(0));
			for (const post of [{ ...of(0), accepted: true }, of(1), of(2), of(3)])
				expect(await keep(post, maxBytes)).toBe(0);
			expect(await keep(of(4), maxBytes)).toBe(1);
			expect(await all()).toEqual([4, 3, 2, 0].map((seconds) => of(seconds).id));
			for (let n = 5; n < 10; n++) expect(await keep(of(n), maxBytes)).toBe(1);
			expect(await all()).toEqual([9, 8, 7, 0].map((seconds) => of(seconds).id));
			// A large one takes the room of several.
			expect(await keep(refusedPost(10, { body: Buffer.alloc(20_000) }), maxBytes)).toBe(2);
			expect(await all()).toEqual([10, 9, 0].map((seconds) => of(seconds).id));
			expect((await current().refusedUsage()).bytes).toBeLessThanOrEqual(maxBytes);
		});

		it("leave a gap when they are accepted, until they are taken in, and are accepted only while there is room", async () => {
			const id = randomUUID();
			await append(current(), sample({ conversationId: id }));
			await appendEvents(current(), batch(id, [event({ eventId: "last" })]));
			const body = Buffer.alloc(10_000);
			const accepted = (seconds: number) => {
				return refusedPost(seconds, { accepted: true, body, conversationId: id });
			};
			const [one, two, three] = [accepted(1), accepted(2), accepted(3)];
			const gap = ({ id, receivedAt }: RefusedPostRow) => {
				return { kind: "refused_batch", missing: String(id), after: "last", since: receivedAt };
			};
			const gaps = async () => (await current().listGaps(id)).toSorted((a, b) => (a.since < b.since ? -1 : 1));
			const limited = 2 * bytesOf(one) + 100;
			for (const post of [refusedPost(0), refusedPost(1, { id: one.id + 1n, body })]) await keep(post, limited);
			expect(await keep(one, limited)).toBe(1);
			expect(await keep(two, limited)).toBe(1);
			expect(await keep(three, limited)).toBeUndefined();
			expect(await all()).toEqual([two.id, one.id]);
			expect(await gaps()).toEqual([gap(one), gap(two)]);
			await current().removeRefusedPost(one.id);
			expect(await gaps()).toEqual([gap(two)]);
			expect(await keep(three, limited)).toBe(0);
			expect(await current().expireRefusedPosts({ keptSince: start, acceptedSince: three.receivedAt })).toBe(1);
			expect(await gaps()).toEqual([gap(three)]);
		});

		it("are removed when they are too old, accepted ones only at a limit of their own", async () => {
			for (const post of [refusedPost(0, { accepted: true }), refusedPost(1), refusedPost(2)]) await keep(post);
			expect(await current().expireRefusedPosts({ keptSince: start + 2n * second, acceptedSince: undefined })).toBe(1);
			expect(await all()).toEqual([2, 0].map((seconds) => refusedPost(seconds).id));
			expect(await current().expireRefusedPosts({ keptSince: start, acceptedSince: start + second })).toBe(1);
			expect(await all()).toEqual([refusedPost(2).id]);
		});
	});
}
