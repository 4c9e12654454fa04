import { expect, test } from "vitest";
import { EventFormat } from "../../src/events/event-format.ts";
import { RecordUpdater } from "../../src/events/record-updater.ts";
import { STATE_UPDATE } from "../../src/events/state-update.ts";
import { UpdateParser } from "../../src/intake/record-intake.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { RecordVault } from "../../src/record/secrets/record-vault.ts";
import { record } from "../support/fixtures.ts";

test("a record is held in memory from the second time on that it was fetched", () => {
	const format = new RecordFormat();
	const vault = new RecordVault(format, []);
	const events = new EventFormat(format, [], "UTC");
	const updater = new RecordUpdater(format, vault, events);
	const posted = new UpdateParser(format, vault).fromJson(Buffer.from(JSON.stringify(record({}))));
	const { conversationId } = posted;
	const batch = (id: string) => {
		const event = { id, timestamp: "2026-01-01T00:00:00", source: "environment", kind: STATE_UPDATE };
		const body = JSON.stringify([{ ...event, key: "execution_status", value: "running" }]);
		return updater.applyToCached(events.parse(conversationId, Buffer.from(body))).batch;
	};
	const fetched = ({ events }: ReturnType<typeof batch>) =>
		updater.apply({
			conversationId,
			current: { memberTimes: undefined, postedAt: 0n, record: posted.record },
			updates: events.map((event) => ({ event, happenedAt: event.happenedAt })),
		});

	const first = batch("1");
	fetched(first);
	const second = batch("2");
	const { next } = fetched(second);
	const third = batch("3");
	const fourth = batch("4");
	expect([first.effect, second.effect, third.effect?.expects, fourth.effect?.expects]).toEqual([
		undefined,
		undefined,
		next,
		third.effect?.next,
	]);
});

test("errors other than violations of a full state are thrown", () => {
	const failing = new (class extends RecordFormat {
		override fromJson(): never {
			throw new RangeError("an error of the program");
		}
	})();
	const { id: conversationId = "", ...value } = record();
	const vault = new RecordVault(failing, []);
	const events = new EventFormat(failing, [], "UTC");
	const event = { id: "1", timestamp: "2026-01-01T00:00:00", source: "environment", kind: STATE_UPDATE };
	const body = Buffer.from(JSON.stringify([{ ...event, key: "full_state", value }]));
	const { batch } = events.parse(String(conversationId), body);
	const applying = () =>
		new RecordUpdater(failing, vault, events).apply({
			conversationId: batch.conversationId,
			current: { memberTimes: undefined, postedAt: undefined, record: undefined },
			updates: batch.events.map((event) => ({ event, happenedAt: event.happenedAt })),
		});
	expect(applying).toThrow(new RangeError("an error of the program"));
});
