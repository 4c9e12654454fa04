import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { describe, expect, test, vi } from "vitest";
import { ConversationFilterSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import { type Notice, noticeGaps, noticesOf } from "../../src/forward/notices.ts";
import { tell } from "../../src/forward/tell.ts";
import { LASTING_GAP } from "../../src/store/gaps.ts";
import type { Store } from "../../src/store/store.ts";
import { appendEvents, batch, event } from "../store/event-samples.ts";
import { append, sample } from "../store/samples.ts";
import { Forwarding } from "./forwarding.ts";
import { eventually, stores } from "./stores.ts";

/** A notice of a budget. */
function notice(more: Partial<Notice> = {}): Notice {
	const about = ["a budget", "2026-01", "0.5"];
	return { change: "BUDGET", about, conversationId: "", owner: undefined, text: "half", data: { spent: 1 }, ...more };
}

describe.each(stores())("with $engine", ({ engine, make }) => {
	test("a notice is told once, to the endpoints that want it, over restarts and other processes", async () => {
		const open = await make();
		{
			await using forwarding = new Forwarding(await open());
			await forwarding.create("hook");
			await forwarding.create("other", { changes: ["STARTED"] });
			await forwarding.create("red", { owner: "red" });
			expect(await forwarding.notices.tell(notice())).toBe(true);
			expect(await forwarding.notices.tell(notice({ owner: "red" }))).toBe(false);
			expect(await forwarding.notices.tell(notice({ owner: "red", about: ["another"] }))).toBe(true);
		}
		await using forwarding = new Forwarding(await open());
		await using others = new AsyncDisposableStack();
		// Only one process has a database of SQLite.
		const another = engine === "SQLite" ? forwarding.store : others.use(await open());
		const inAnother = noticesOf({ store: another, clock: forwarding.clock, onChange: () => undefined });
		expect(await inAnother.tell(notice())).toBe(false);
		const both = [forwarding.notices, inAnother].map((one) => one.tell(notice({ about: ["together"] })));
		expect((await Promise.all(both)).toSorted()).toEqual([false, true]);
		const told = await forwarding.deliveries();
		expect(told.toReversed()).toMatchObject([
			{
				change: "BUDGET",
				conversationId: "",
				sequence: undefined,
				data: '{"change":"budget","text":"half","spent":1}',
			},
			{ state: "waiting" },
			{ state: "waiting" },
		]);
		for (const { id } of told) expect(id).toMatch(/^[0-9a-f]{18}_budget_[0-9a-f]{32}$/);
		expect(await forwarding.deliveries("other")).toEqual([]);
		expect(await forwarding.deliveries("red", "red")).toHaveLength(1);
	});

	test("a notice of a conversation is sent behind what is in its queue, meets the filter, and is erased", async () => {
		await using forwarding = new Forwarding(await (await make())());
		const filter = create(ConversationFilterSchema, { tags: { team: "a" } });
		const changes = ["STARTED", "SILENT"];
		await forwarding.create("hook", { changes });
		await forwarding.create("team", { changes, filter });
		const otherTeam = create(ConversationFilterSchema, { tags: { team: "b" } });
		await forwarding.create("others", { changes, filter: otherTeam });
		const conversationId = randomUUID();
		const columns = { tags: { team: "a" }, title: "mine" };
		const { sequence } = await append(forwarding.store, sample({ conversationId, columns }));
		let answer: () => void = () => undefined;
		const answered = new Promise<void>((resolve) => {
			answer = resolve;
		});
		const { answer: ok } = forwarding;
		forwarding.answer = async (sent) => {
			await answered;
			return await ok(sent);
		};
		forwarding.start();
		await forwarding.count(2);
		expect(await forwarding.notices.tell(notice({ change: "SILENT", conversationId }))).toBe(true);
		answer();
		await forwarding.count(4);
		const mine = forwarding.sent.filter(({ id }) => id.startsWith(forwarding.sent[0]?.id.split("_")[0] ?? ""));
		expect(mine.map((one) => one.sequence)).toEqual([sequence, undefined]);
		expect(await forwarding.deliveries("others")).toEqual([]);
		await eventually(async () =>
			expect((await forwarding.deliveries()).every(({ state }) => state === "delivered")).toBe(true),
		);
		const [row] = await forwarding.deliveries();
		expect(JSON.parse(row?.data ?? "")).toMatchObject({
			...{ change: "silent", conversation_id: conversationId, text: "half", summary: { title: "mine" } },
		});
		await forwarding.store.erase({ conversationId, owner: undefined, erasedAt: 1n });
		// The erasure itself is told in due course, with a digest of the id.
		const told = (await forwarding.deliveries()).filter(({ change }) => change !== "ERASED");
		expect(told.map((one) => [one.conversationId, one.data])).toEqual([
			["", undefined],
			["", undefined],
		]);
		// What is noticed of it afterwards leaves nothing.
		await forwarding.notices.tell(notice({ change: "SILENT", conversationId, about: ["later"] }));
		expect((await forwarding.deliveries()).map((one) => [one.conversationId, one.data, one.state])).toContainEqual([
			...["", undefined, "lost"],
		]);
	});

	test("a gap is told once when it has lasted, not when it closes before, nor when it lasted before the endpoint was", async () => {
		const open = await make();
		const gap = async (store: Store, conversationId: string, receivedAt: bigint) => {
			await append(store, sample({ conversationId, receivedAt }));
			const events = [event({ eventId: "b", parentId: "a" })];
			await appendEvents(store, batch(conversationId, events, { receivedAt }));
		};
		const [old, lasting, closed] = [randomUUID(), randomUUID(), randomUUID()];
		const look = (forwarding: Forwarding) => {
			const stop = new AbortController();
			const { store, notices, clock, errors } = forwarding;
			const looking = noticeGaps({ store, notices, clock, onError: (error) => errors.push(error) }, stop.signal);
			return async () => {
				stop.abort();
				await looking;
			};
		};
		{
			await using forwarding = new Forwarding(await open());
			const micros = () => BigInt(forwarding.clock.now()) * 1000n;
			await gap(forwarding.store, old, micros());
			forwarding.clock.advance(LASTING_GAP + 1);
			await forwarding.create();
			const stop = look(forwarding);
			await gap(forwarding.store, lasting, micros());
			await gap(forwarding.store, closed, micros());
			const found = [event({ eventId: "a" })];
			await appendEvents(forwarding.store, batch(closed, found, { receivedAt: micros() }));
			await eventually(async () => {
				forwarding.clock.advance(30_000);
				expect(await forwarding.deliveries()).toHaveLength(1);
			});
			expect(forwarding.clock.now()).toBeGreaterThanOrEqual(Date.parse("2026-01-01T00:04:00Z"));
			await stop();
			expect(forwarding.errors).toEqual([]);
		}
		await using forwarding = new Forwarding(await open());
		forwarding.clock.advance(3_600_000);
		const told: boolean[] = [];
		const { notices } = forwarding;
		const tellAgain = notices.tell.bind(notices);
		vi.spyOn(notices, "tell").mockImplementation(async (one) => {
			told.push(await tellAgain(one));
			return false;
		});
		const stop = look(forwarding);
		await eventually(() => expect(told).toEqual([false]));
		await stop();
		const rows = await forwarding.deliveries();
		expect(rows).toMatchObject([{ change: "GAP", conversationId: lasting, state: "waiting" }]);
		const [row] = rows;
		if (row === undefined) throw new Error("there is one");
		const { store } = forwarding;
		const shown = await tell(
			{ store, reads: { get: { getJson: unused }, events: { listTexts: unused } } },
			{ owner: "", include: [] },
			row,
		);
		expect(shown).toMatchObject({ change: "GAP", text: "something is missing" });
		expect(JSON.parse(shown?.data ?? "")).toMatchObject({
			change: "gap",
			conversation_id: lasting,
			gap: { kind: "missing_parent", after_event_id: null, missing_event_id: "a", refused_post_id: null },
		});
	});
});

function unused(): never {
	throw new Error("not used");
}
