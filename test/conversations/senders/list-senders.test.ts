import { expect, test } from "vitest";
import { isSilent, listSenders } from "../../../src/conversations/senders.ts";
import type { SenderFigures } from "../../../src/store/senders.ts";

const MINUTE = 60_000_000n;
const HOUR = 60n * MINUTE;
const NOW = 1_790_000_000_000_000n;

/** A sender that posts every two minutes, and posted last some time ago. */
const after = (silence: bigint, posts = 20n, usualInterval = 2n * MINUTE) => ({
	...{ posts, lastPostAt: NOW - silence, usualInterval },
});

test.each([
	["after ten of its usual intervals", after(20n * MINUTE + 1n), 1n, true],
	["not before", after(20n * MINUTE), 1n, false],
	["not before ten minutes, however often it posts", after(10n * MINUTE, 20n, MINUTE / 60n), 1n, false],
	["after ten minutes, if it posts often", after(10n * MINUTE + 1n, 20n, MINUTE / 60n), 1n, true],
	["not without running conversations", after(HOUR), 0n, false],
	["not with too few posts to tell what is usual", after(HOUR, 19n), 1n, false],
	["not after a week, when nobody expects it any more", after(7n * 24n * HOUR), 1n, false],
	["until then", after(7n * 24n * HOUR - 1n), 1n, true],
	["not if it posts seldom", after(9n * HOUR, 20n, HOUR), 1n, false],
	["not if its last post is in the future", after(-HOUR), 1n, false],
])("a sender is silent %s", (_, totals, running, silent) => {
	expect(isSilent(totals, running, NOW)).toBe(silent);
});

/** Lists senders that the store has these figures of. */
async function list({ senders = [], refusals = [], running = [] }: Partial<SenderFigures>) {
	const store = { listSenders: async () => ({ senders, refusals, running }) };
	const found = await listSenders(store, { of: () => undefined }, Number(NOW / 1000n));
	return found.map(({ name, owner, runningConversations, silent }) => [name, owner, runningConversations, silent]);
}

test("a sender whose conversations were assigned to an owner is silent as before, and the owner has their number", async () => {
	const agent = { sender: "agent", firstPostAt: 0n, records: 0n, events: 0n, ...after(HOUR) };
	const running = [
		{ sender: "agent", owner: "red", count: 3n },
		{ sender: "other", owner: "red", count: 9n },
	];
	expect(await list({ senders: [{ ...agent, owner: "" }], running })).toEqual([
		["agent", "", 0n, true],
		["agent", "red", 3n, false],
		["other", "red", 9n, false],
	]);
	// Once it posts for that owner, its earlier posts are no longer expected to go on.
	expect(
		await list({
			senders: [
				{ ...agent, owner: "" },
				{ ...agent, owner: "red" },
			],
			running,
		}),
	).toEqual([
		["agent", "", 0n, false],
		["agent", "red", 3n, true],
		["other", "red", 9n, false],
	]);
});
