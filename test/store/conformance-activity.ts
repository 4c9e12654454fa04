import { randomUUID } from "node:crypto";
import { fromBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { beforeEach, describe, expect, it } from "vitest";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { toMicroseconds } from "../../src/record/json/scalars.ts";
import type { NewEvent } from "../../src/store/entries.ts";
import type { Store } from "../../src/store/store.ts";
import { effect, event, stateUpdate, withActivity } from "./event-samples.ts";
import { all, at, eventSteps } from "./event-steps.ts";
import { bytes } from "./samples.ts";

/** Tests of what the events of a conversation add up to. */
export function activityConformance(current: () => Store, reopen: () => Promise<Store>): void {
	let store: Store;
	beforeEach(() => {
		store = current();
	});
	const { appendBatch, post } = eventSteps(() => store);

	describe("activity", () => {
		const listed = async () => {
			const page = await store.listConversations({ conditions: [], limit: 10, withRecords: false });
			return page.map(({ summary }) => summary);
		};

		it("is the present one in lists and that of the time of writing in updates, also with late batches", async () => {
			const a = randomUUID();
			await appendBatch(a, [event({ happenedAt: at(8), message: "hello" }), event({ happenedAt: at(9) })]);
			const { update } = await post(a, "posted", 1, {}, "");
			expect(await listed()).toEqual([withActivity(update.summary, 2n, at(9), { lastMessage: "hello" })]);
			await appendBatch(a, [event({ happenedAt: at(7), message: "late" })]);
			expect(await listed()).toEqual([withActivity(update.summary, 3n, at(9), { lastMessage: "hello" })]);
			await appendBatch(a, [event({ happenedAt: at(8), message: "same time" }), stateUpdate({ happenedAt: at(10) })]);
			expect(await listed()).toEqual([withActivity(update.summary, 5n, at(10), { lastMessage: "same time" })]);
			const updates = await store.updates.list({ ...all, withRecords: false });
			expect(updates.map(({ summary }) => summary)).toEqual([
				withActivity(update.summary, 2n, at(9), { lastMessage: "hello" }),
			]);
		});

		it("has the first message of a user, and the last error until the conversation runs again", async () => {
			const a = randomUUID();
			const facts = async () => {
				const [summary] = (await listed()).map((bytes) => fromBinary(ConversationSummarySchema, bytes));
				const { firstMessage, lastError: error, runStartedAt } = summary ?? {};
				const { code, kind, retryable, text, eventSequence } = error ?? {};
				const [failed, started] = [error?.happenedAt, runStartedAt].map((time) => time && toMicroseconds(time));
				return [firstMessage, error && [code, kind, retryable, text, failed, eventSequence], started];
			};
			const failure = (code: string, n: number, retryable?: boolean) => {
				const error = { code, kind: "auth", retryable, text: `${code} failed` };
				return event({ kind: "ConversationErrorEvent", source: "environment", happenedAt: at(n), error });
			};
			const said = (message: string, n: number, source = "user") => event({ message, happenedAt: at(n), source });
			await post(a, "posted", 1);
			expect(await facts()).toEqual([undefined, undefined, undefined]);
			await post(a, "posted", 2, { status: "running" });
			expect(await facts()).toEqual([undefined, undefined, at(2)]);
			await appendBatch(a, [said("of the agent", 3, "agent"), said("second", 5), said("first", 4)]);
			const { newest } = await appendBatch(a, [failure("One", 6, true)]);
			const one = ["One", "auth", true, "One failed", at(6), newest];
			expect(await facts()).toEqual(["first", one, at(2)]);
			await appendBatch(a, [failure("Late", 5), said("late", 5), said("same time", 4)]);
			expect(await facts()).toEqual(["first", one, at(2)]);
			const { newest: second } = await appendBatch(a, [stateUpdate({ happenedAt: at(8) }), failure("Two", 7)], {
				effect: effect((await store.getRecordState(a, [])).revision, "failed", { status: "error" }),
			});
			const two = ["Two", "auth", undefined, "Two failed", at(7), second];
			expect(await facts()).toEqual(["first", two, at(2)]);
			store = await reopen();
			expect(await facts()).toEqual(["first", two, at(2)]);
			const { revision } = await store.getRecordState(a, []);
			const running = effect(revision, "runs", { status: "running" });
			const version = running.version && { ...running.version, statusAt: at(9) };
			await appendBatch(a, [stateUpdate({ happenedAt: at(9) })], { effect: { ...running, version } });
			expect(await facts()).toEqual(["first", undefined, at(9)]);
			const updates = await store.updates.list({ ...all, withRecords: false });
			const errors = updates.map(({ summary }) => fromBinary(ConversationSummarySchema, summary).lastError);
			expect(errors.map((error) => error && [error.code, error.eventSequence])).toEqual([
				...[undefined, undefined],
				["Two", second],
				undefined,
			]);
		});

		it("counts each event once and follows the latest by time, in whatever batches they arrive", async () => {
			const said = fc.record({ happenedAt: fc.integer({ max: 9 }).map(at), said: fc.boolean() });
			const arrivals = fc.array(fc.array(fc.nat(7), { maxLength: 4 }), { maxLength: 6 });
			await fc.assert(
				fc.asyncProperty(fc.array(said, { minLength: 8, maxLength: 8 }), arrivals, async (made, batches) => {
					const a = randomUUID();
					const { update } = await post(a, "posted", 1, {}, "");
					const events = made.map(({ happenedAt, said }, n) =>
						event({ happenedAt, message: said ? `message ${n}` : undefined }),
					);
					const seen = new Map<string, NewEvent>();
					for (const indexes of batches) {
						const some = [...new Set(indexes)].flatMap((n) => events[n] ?? []);
						await appendBatch(a, some);
						for (const one of some) if (!seen.has(one.eventId)) seen.set(one.eventId, one);
					}
					const arrived = [...seen.values()];
					const byTime = arrived.toSorted((one, other) => Number(one.happenedAt - other.happenedAt));
					const lastSaid = byTime.findLast(({ message }) => message !== undefined)?.message;
					const { summary } = update;
					const count = BigInt(arrived.length);
					const lastAt = byTime.at(-1)?.happenedAt;
					expect((await listed())[0]).toEqual(
						lastAt === undefined ? bytes(summary) : withActivity(summary, count, lastAt, { lastMessage: lastSaid }),
					);
				}),
				{ numRuns: 30 },
			);
		});
	});
}
