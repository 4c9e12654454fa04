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
		...{ id: idsFrom(receivedAt) + 7n, receivedAt, lastAt: receivedAt, requests: 1n },
		...{ sender: "agent", owner: undefined, peer: undefined, route: "/route", form: "events_json" },
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
	const posts = () => current().refusedPosts;
	const room = { maxBytes: 2 ** 20, maxPeers: 3 };
	const all = async () => (await posts().list({ limit: 1000 })).map(({ id }) => id);

	describe("refused posts", () => {
		it("are listed by id and returned with their bodies, also after the store was opened again", async () => {
			const own = refusedPost(2, { owner: "team", body: undefined, retriedAt: start, form: "record_message" });
			const accepted = refusedPost(3, { accepted: true, size: 2 ** 33 });
			const unknown = refusedPost(1, {
				sender: undefined,
				peer: "2001:db8::7",
				conversationId: undefined,
				requests: 4n,
			});
			await posts().add([own, accepted, unknown], room);
			const newestFirst = [accepted, own, unknown].map(listed);
			expect(await posts().list({ limit: 10 })).toEqual(newestFirst);
			expect(await posts().list({ limit: 1, before: accepted.id })).toEqual(newestFirst.slice(1, 2));
			expect(await posts().list({ limit: 10, owner: "team" })).toEqual(newestFirst.slice(1, 2));
			expect(await posts().list({ limit: 10, after: 0n })).toEqual([unknown, accepted].map(listed));
			expect(await posts().list({ limit: 10, after: unknown.id, owner: "team" })).toEqual([]);
			const { refusedPosts } = await reopen();
			const found = await refusedPosts.get(accepted.id);
			expect({ ...found, body: Buffer.from(found?.body ?? []).toString() }).toEqual({ ...accepted, body: "bytes" });
			expect(await refusedPosts.get(own.id, "team")).toEqual(own);
			expect(await refusedPosts.get(own.id, "other")).toBeUndefined();
			expect(await refusedPosts.get(accepted.id, "team")).toBeUndefined();
			const sum = [own, accepted, unknown].reduce((bytes, post) => bytes + bytesOf(post), 0);
			expect(await refusedPosts.usage()).toEqual({ posts: 3, bytes: sum });
		});

		it("keep their new reasons, and are removed once they are taken in", async () => {
			const [one, two] = [refusedPost(1), refusedPost(2)];
			await posts().add([one, two], room);
			const again = { id: one.id, kind: "data_loss", reasons: "[]", retriedAt: start + 9n };
			await posts().setReasons(again);
			await posts().remove(two.id);
			expect(await posts().list({ limit: 10 })).toEqual([listed({ ...one, ...again })]);
		});

		it("add up the requests of the same client, of which the oldest go beyond a number", async () => {
			const client = (seconds: number) => refusedPost(seconds, { sender: undefined, peer: `192.0.2.${seconds}` });
			const first = { ...client(1), requests: 2n };
			await posts().add([refusedPost(0), first], room);
			expect(await posts().add([{ ...first, requests: 5n, lastAt: first.lastAt + 3n }], room)).toBe(0);
			expect((await posts().list({ limit: 1 }))[0]).toEqual(
				listed({ ...first, requests: 7n, lastAt: first.lastAt + 3n }),
			);
			expect(await posts().add([client(2), client(3), client(4), client(5)], room)).toBe(2);
			expect(await all()).toEqual([5, 4, 3, 0].map((seconds) => refusedPost(seconds).id));
		});

		it("take limited room, in which the oldest make place for others, but never an accepted one", async () => {
			const body = Buffer.alloc(10_000);
			const of = (seconds: number) => refusedPost(seconds, { body });
			const maxBytes = 4 * bytesOf(of(0));
			const limited = { maxBytes, maxPeers: 3 };
			await posts().add([{ ...of(0), accepted: true }, of(1), of(2), of(3)], limited);
			expect(await posts().add([of(4)], limited)).toBe(1);
			expect(await all()).toEqual([4, 3, 2, 0].map((seconds) => of(seconds).id));
			expect(await posts().add([of(5), of(6), of(7), of(8), of(9)], limited)).toBe(5);
			expect(await all()).toEqual([9, 8, 7, 0].map((seconds) => of(seconds).id));
			expect((await posts().usage()).bytes).toBe(maxBytes);
		});

		it("leave a gap when they are accepted, until they are taken in, and are accepted only while there is room", async () => {
			const id = randomUUID();
			await append(current(), sample({ conversationId: id }));
			await appendEvents(current(), batch(id, [event({ eventId: "last" })]));
			const body = Buffer.alloc(10_000);
			const accepted = (seconds: number) => {
				return { ...refusedPost(seconds, { accepted: true, body }), conversationId: id };
			};
			const [one, two, three] = [accepted(1), accepted(2), accepted(3)];
			const gap = ({ id, receivedAt }: RefusedPostRow) => {
				return { kind: "refused_batch", missing: String(id), after: "last", since: receivedAt };
			};
			const gaps = async () => (await current().listGaps(id)).toSorted((a, b) => (a.since < b.since ? -1 : 1));
			const limited = { maxBytes: 2 * bytesOf(one) + 100, maxPeers: 3 };
			await posts().add([refusedPost(0), refusedPost(1, { id: one.id + 1n, body })], limited);
			expect(await posts().accept(one, limited)).toBe(1);
			expect(await posts().accept(two, limited)).toBe(1);
			expect(await posts().accept(three, limited)).toBeUndefined();
			expect(await all()).toEqual([two.id, one.id]);
			expect(await gaps()).toEqual([gap(one), gap(two)]);
			await posts().remove(one.id);
			expect(await gaps()).toEqual([gap(two)]);
			expect(await posts().accept(three, limited)).toBe(0);
			expect(await posts().expire({ keptSince: start, acceptedSince: three.receivedAt })).toBe(1);
			expect(await gaps()).toEqual([gap(three)]);
		});

		it("are removed when they are too old, accepted ones only at a limit of their own", async () => {
			await posts().add([refusedPost(0, { accepted: true }), refusedPost(1), refusedPost(2)], room);
			expect(await posts().expire({ keptSince: start + 2n * second, acceptedSince: undefined })).toBe(1);
			expect(await all()).toEqual([2, 0].map((seconds) => refusedPost(seconds).id));
			expect(await posts().expire({ keptSince: start, acceptedSince: start + second })).toBe(1);
			expect(await all()).toEqual([refusedPost(2).id]);
		});
	});
}
