import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { planAppends } from "../../src/store/append-group.ts";
import { packRecord } from "../../src/store/record-column.ts";
import { transaction } from "../../src/store/sqlite/database.ts";
import { sqliteSession } from "../../src/store/sqlite/session.ts";
import { Statements } from "../../src/store/sqlite/sql.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { type FollowGoal, furtherGoal, NOTHING } from "../../src/store/views/follow.ts";
import { resetViews, ViewFollower } from "../../src/store/views/views.ts";
import { TempFolder } from "../support/temp.ts";
import { sample } from "./samples.ts";

let folder: TempFolder;
beforeAll(() => {
	folder = new TempFolder();
});
afterAll(() => folder[Symbol.dispose]());

/** Milliseconds that no step takes, however busy the machine is. */
const NEVER_TOO_LONG = 1_000_000;

/** Opens a new database with views that follow it, as the writer's thread does. */
async function openViews() {
	const path = folder.file(`${performance.now()}.db`);
	await (await openSqliteStore(path, { error() {} })).close();
	const database = new DatabaseSync(path, { readBigInts: true });
	const session = sqliteSession(new Statements(database));
	const write = <Result>(work: () => Promise<Result>) => transaction(database, "BEGIN IMMEDIATE", work);
	let next: "commits" | "fails" | "is repeated" = "commits";
	const follower = new ViewFollower(async (work) => {
		const fate = next;
		next = "commits";
		if (fate === "commits") return await write(() => work(session));
		const attempt = write(async () => {
			await work(session);
			throw new Error("rolled back");
		});
		if (fate === "fails") return await attempt;
		await attempt.catch(() => undefined);
		return await write(() => work(session));
	}, NEVER_TOO_LONG);
	let updatedAt = 0n;
	return {
		step: (goal?: FollowGoal) => follower.step(goal),
		waiting: () => follower.waiting,
		async append(...conversationIds: readonly string[]): Promise<void> {
			const requests = conversationIds.map((conversationId) => ({
				update: sample({ conversationId, columns: { updatedAt: ++updatedAt } }),
				judged: undefined,
			}));
			const written = await write(async () => {
				const group = await planAppends(session, requests, () => undefined, packRecord);
				await group.write?.();
				return group.written;
			});
			follower.append(written);
		},
		/** Does as the writer's `resetViews`. */
		async reset(): Promise<void> {
			await write(() => resetViews(session));
			follower.restart();
		},
		/** Says what happens to the next step. One is repeated after a deadlock in PostgreSQL, for example. */
		setNext(fate: typeof next): void {
			next = fate;
		},
		/** The positions of the views, and how often each conversation has the update with its sequence. */
		state() {
			const positions = database.prepare("SELECT updates FROM views").all();
			const rows = database.prepare("SELECT conversation_id AS id, sequence FROM conversations").all();
			return {
				positions: positions.map(({ updates }) => updates),
				sequences: Object.fromEntries(rows.map(({ id, sequence }) => [id, sequence])),
			};
		},
		[Symbol.dispose]: () => database.close(),
	};
}

const ids = Array.from({ length: 6 }, (_, n) => `00000000-0000-4000-8000-00000000000${n}`);
const [first = "", last = ""] = [ids[0], ids[5]];
/** The sequences of the first updates of all. */
const FIRST = Object.fromEntries(ids.map((id, n) => [id, BigInt(n + 1)]));

test("a round derives each conversation once, although one changes with each step", async () => {
	using views = await openViews();
	await views.step();
	await views.append(...ids);
	expect(await views.step("round")).toBe(true);
	// The first two conversations are derived.
	await views.append(first, last);
	expect(await views.step("round")).toBe(false);
	expect(views.state()).toEqual({ positions: [6n, 6n], sequences: { ...FIRST, [last]: 8n } });
	await views.append(first);
	expect(await views.step("round")).toBe(false);
	expect(views.state()).toEqual({ positions: [9n, 9n], sequences: { ...FIRST, [last]: 8n, [first]: 9n } });
});

test("an entry of a conversation that waits in the round belongs to the round", async () => {
	using views = await openViews();
	await views.step();
	await views.append(...ids);
	expect(await views.step("round")).toBe(true);
	await views.append(last);
	expect(await views.step("round")).toBe(false);
	expect(views.state()).toEqual({ positions: [7n, 7n], sequences: { ...FIRST, [last]: 7n } });
});

test("a read goes on after a round until all is followed, at least to its position", async () => {
	using views = await openViews();
	await views.step();
	await views.append(...ids);
	expect(await views.step({ updates: 30n, events: 0n })).toBe(true);
	await views.append(first);
	expect(await views.step({ updates: 30n, events: 0n })).toBe(true);
	expect(views.state()).toEqual({ positions: [6n, 6n], sequences: FIRST });
	expect(await views.step({ updates: 30n, events: 0n })).toBe(false);
	expect(views.state()).toEqual({ positions: [30n, 30n], sequences: { ...FIRST, [first]: 7n } });
});

test("what was appended before the first step is read from the log", async () => {
	using views = await openViews();
	await views.append(...ids);
	expect(await views.step("round")).toBe(true);
	await views.append(first);
	for (let hasMore = true; hasMore; ) hasMore = await views.step();
	expect(views.state()).toEqual({ positions: [7n, 7n], sequences: { ...FIRST, [first]: 7n } });
});

/** Ids of more conversations, and the sequences of the first updates of all. */
function manyIds(count: number) {
	const many = Array.from({ length: count }, (_, n) => `10000000-0000-4000-8000-${String(n).padStart(12, "0")}`);
	return { many, sequences: Object.fromEntries(many.map((id, n) => [id, BigInt(n + 1)])) };
}

test("a round has what was appended before it, also if that is more than a step reads", async () => {
	using views = await openViews();
	const { many, sequences } = manyIds(300);
	await views.append(...many);
	expect(await views.step("round")).toBe(true);
	expect(views.waiting()).toBe(Number.POSITIVE_INFINITY);
	expect(await views.step("round")).toBe(true);
	expect(views.waiting()).toBe(294);
	for (let hasMore = true; hasMore; ) hasMore = await views.step("round");
	expect(views.waiting()).toBe(0);
	expect(views.state()).toEqual({ positions: [300n, 300n], sequences });
});

test.each(["commits", "fails", "is repeated"] as const)(
	"after a reset all is followed again, also when a step %s",
	async (fate) => {
		using views = await openViews();
		const { many, sequences } = manyIds(200);
		await views.step();
		await views.append(...many);
		expect(await views.step("round")).toBe(true);
		await views.reset();
		expect(views.state()).toEqual({ positions: [0n, 0n], sequences: {} });
		expect(await views.step()).toBe(true);
		views.setNext(fate);
		if (fate === "fails") await expect(views.step()).rejects.toThrow("rolled back");
		for (let hasMore = true; hasMore; ) hasMore = await views.step();
		expect(views.state()).toEqual({ positions: [200n, 200n], sequences });
	},
);

test("the goal of several who wait is the last one", () => {
	const [early, late] = [
		{ updates: 3n, events: 9n },
		{ updates: 5n, events: 2n },
	];
	expect(furtherGoal("round", "round")).toBe("round");
	expect(furtherGoal("round", NOTHING)).toEqual(NOTHING);
	expect(furtherGoal(early, "round")).toEqual(early);
	expect(furtherGoal(early, late)).toEqual({ updates: 5n, events: 9n });
});
