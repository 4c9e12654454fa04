import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { countSilent, countUnheard } from "../../../src/conversations/read/count.ts";
import { openSqliteStore } from "../../../src/store/sqlite/sqlite.ts";
import { append, sample, start } from "../../store/samples.ts";
import { TempFolder } from "../../support/temp.ts";

const NOW = Number(start / 1000n);
const [AGENT, RED, QUIET] = [
	{ sender: "agent", owner: undefined },
	{ sender: "red-agent", owner: "red" },
	{ sender: "quiet-agent", owner: "red" },
];

test("a conversation is silent after ten minutes, and unheard if it runs while its sender posts others", async () => {
	using folder = new TempFolder();
	await using store = await openSqliteStore(folder.file("conversations.db"), { error: () => undefined });
	const minutesAgo = (minutes: number) => NOW - minutes * 60_000;
	for (const [poster, status, minutes] of [
		[AGENT, "running", 5],
		[AGENT, "running", 11],
		[AGENT, "waiting_for_confirmation", 20],
		[AGENT, "finished", 20],
		[RED, "running", 20],
		[QUIET, "running", 20],
	] as const) {
		const columns = { status, updatedAt: BigInt(minutesAgo(minutes)) * 1000n };
		await append(store, { ...sample({ receivedAt: start, columns }), poster });
	}
	const unheard = (quietSince: number) =>
		countUnheard(
			store,
			[AGENT, RED, QUIET].map(({ sender }) => ({
				name: sender,
				lastPostAt: timestampFromMs(minutesAgo(sender === QUIET.sender ? quietSince : 1)),
			})),
			NOW,
		);
	expect(await countSilent(store, NOW)).toBe(4n);
	expect(await unheard(60)).toBe(2n);
	expect(await unheard(0)).toBe(3n);
});
