import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ConversationExecutionStatus as Status } from "../../gen/conversations/v1/conversation_pb.js";
import { UpdateChange } from "../../gen/conversations/v1/update_pb.js";
import {
	changeBetween,
	comparableTime,
	decide,
	MAX_CLOCK_SKEW,
	type OrderState,
	orderTime,
} from "../../src/store/ordering.ts";

const statuses = [Status.IDLE, Status.RUNNING, Status.PAUSED, Status.FINISHED, Status.DELETING];
const status = fc.constantFrom(...statuses);
const time = fc.option(fc.bigInt({ min: -5n, max: 5n }), { nil: undefined });
const state: fc.Arbitrary<OrderState> = fc.record({ status, time });

/** Returns the record that is current after all records have arrived in this order. */
function settle<State extends OrderState>(arriving: readonly State[]): State | undefined {
	let current: State | undefined;
	for (const next of arriving) if (decide(current, next).current) current = next;
	return current;
}

describe("decide", () => {
	it.each([
		[undefined, { status: Status.IDLE, time: 1n }, { current: true, change: UpdateChange.STARTED }],
		[undefined, { status: Status.PAUSED, time: 1n }, { current: true, change: UpdateChange.STARTED }],
		[undefined, { status: Status.DELETING, time: 1n }, { current: true, change: UpdateChange.DELETED }],
		[
			{ status: Status.IDLE, time: 1n },
			{ status: Status.RUNNING, time: 2n },
			{ current: true, change: UpdateChange.RUNNING },
		],
		[
			{ status: Status.IDLE, time: 1n },
			{ status: Status.IDLE, time: 2n },
			{ current: true, change: UpdateChange.UPDATED },
		],
		[
			{ status: Status.IDLE, time: 1n },
			{ status: Status.PAUSED, time: 2n },
			{ current: true, change: UpdateChange.PAUSED },
		],
		[
			{ status: Status.PAUSED, time: 1n },
			{ status: Status.PAUSED, time: 2n },
			{ current: true, change: UpdateChange.UPDATED },
		],
		[
			{ status: Status.PAUSED, time: 1n },
			{ status: Status.RUNNING, time: 2n },
			{ current: true, change: UpdateChange.RESUMED },
		],
		[
			{ status: Status.PAUSED, time: 1n },
			{ status: Status.DELETING, time: 2n },
			{ current: true, change: UpdateChange.DELETED },
		],
		[
			{ status: Status.IDLE, time: 2n },
			{ status: Status.PAUSED, time: 1n },
			{ current: false, change: UpdateChange.UPDATED },
		],
		[
			{ status: Status.IDLE, time: 2n },
			{ status: Status.PAUSED, time: 2n },
			{ current: true, change: UpdateChange.PAUSED },
		],
		[
			{ status: Status.IDLE, time: undefined },
			{ status: Status.IDLE, time: 2n },
			{ current: true, change: UpdateChange.UPDATED },
		],
		[
			{ status: Status.IDLE, time: 2n },
			{ status: Status.IDLE, time: undefined },
			{ current: true, change: UpdateChange.UPDATED },
		],
		[
			{ status: Status.DELETING, time: 2n },
			{ status: Status.IDLE, time: 2n },
			{ current: false, change: UpdateChange.UPDATED },
		],
		[
			{ status: Status.DELETING, time: 2n },
			{ status: Status.IDLE, time: undefined },
			{ current: false, change: UpdateChange.UPDATED },
		],
		[
			{ status: Status.DELETING, time: 2n },
			{ status: Status.IDLE, time: 3n },
			{ current: true, change: UpdateChange.UPDATED },
		],
		[
			{ status: Status.DELETING, time: 2n },
			{ status: Status.DELETING, time: 1n },
			{ current: false, change: UpdateChange.UPDATED },
		],
		[
			{ status: Status.DELETING, time: 2n },
			{ status: Status.DELETING, time: 2n },
			{ current: false, change: UpdateChange.UPDATED },
		],
		[
			{ status: Status.DELETING, time: 2n },
			{ status: Status.DELETING, time: undefined },
			{ current: false, change: UpdateChange.UPDATED },
		],
		[
			{ status: Status.DELETING, time: 2n },
			{ status: Status.DELETING, time: 3n },
			{ current: true, change: UpdateChange.UPDATED },
		],
	] as const)("after %o, the arrival of %o results in %o", (current, arriving, expected) => {
		expect(decide(current, arriving)).toEqual(expected);
	});

	it("derives the change from the old and the new status", () => {
		const changes = [
			[Status.RUNNING, UpdateChange.RUNNING, UpdateChange.RESUMED],
			[Status.IDLE, UpdateChange.UPDATED, UpdateChange.RESUMED],
			[Status.PAUSED, UpdateChange.PAUSED, UpdateChange.UPDATED],
			[Status.WAITING_FOR_CONFIRMATION, UpdateChange.WAITING, UpdateChange.WAITING],
			[Status.FINISHED, UpdateChange.FINISHED, UpdateChange.FINISHED],
			[Status.ERROR, UpdateChange.FAILED, UpdateChange.FAILED],
			[Status.STUCK, UpdateChange.UPDATED, UpdateChange.STUCK],
			[Status.DELETING, UpdateChange.DELETED, UpdateChange.DELETED],
		] as const;
		for (const [after, fromStuck, fromPaused] of changes)
			expect([changeBetween(Status.STUCK, after), changeBetween(Status.PAUSED, after)]).toEqual([
				fromStuck,
				fromPaused,
			]);
	});

	it("makes the newest record current in the end, in whatever order distinct times arrive", () => {
		const distinct = fc
			.uniqueArray(fc.bigInt({ min: 0n, max: 1_000n }), { minLength: 1, maxLength: 12 })
			.chain((times) => fc.tuple(...times.map((time) => fc.record({ status: status, time: fc.constant(time) }))));
		fc.assert(
			fc.property(distinct, (arriving) => {
				const newest = arriving.toSorted((a, b) => Number(a.time - b.time)).at(-1);
				expect(settle(arriving)).toEqual(newest);
			}),
		);
	});

	it("never lets an older record become current", () => {
		fc.assert(
			fc.property(state, state, (current, arriving) => {
				const older = current.time !== undefined && arriving.time !== undefined && arriving.time < current.time;
				fc.pre(older);
				expect(decide(current, arriving)).toEqual({ current: false, change: UpdateChange.UPDATED });
			}),
		);
	});

	it("replaces a deletion only by a record that is certainly newer", () => {
		fc.assert(
			fc.property(time, state, (time, arriving) => {
				const newer = time !== undefined && arriving.time !== undefined && arriving.time > time;
				expect(decide({ status: Status.DELETING, time }, arriving).current).toBe(newer);
			}),
		);
	});

	it("lets the later arrival win when times are equal or missing", () => {
		fc.assert(
			fc.property(state, state, (current, arriving) => {
				fc.pre(current.status !== Status.DELETING);
				fc.pre(current.time === undefined || arriving.time === undefined || current.time === arriving.time);
				expect(decide(current, arriving).current).toBe(true);
			}),
		);
	});
});

describe("the order of records when a clock may be wrong", () => {
	const minute = 60_000_000n;
	/** Records that arrive one minute apart. `claimed` is `updatedAt` in minutes after the receipt. */
	const records = fc
		.array(
			fc.record({
				status,
				claimed: fc.option(fc.oneof(fc.bigInt({ min: -20n, max: 20n }), fc.constantFrom(-(10n ** 12n), 10n ** 12n)), {
					nil: undefined,
				}),
			}),
			{ minLength: 1, maxLength: 12 },
		)
		.map((all) =>
			all.map(({ status: its, claimed }, n) => {
				const receivedAt = BigInt(n) * minute;
				const updatedAt = claimed === undefined ? undefined : receivedAt + claimed * minute;
				return { status: its, receivedAt, updatedAt, time: orderTime(updatedAt, receivedAt) };
			}),
		);

	it("uses the time of receipt in place of an `updated_at` that is too far in the future", () => {
		expect(orderTime(undefined, 7n)).toBe(undefined);
		expect(orderTime(-5n, 7n)).toBe(-5n);
		expect(orderTime(7n + MAX_CLOCK_SKEW, 7n)).toBe(7n + MAX_CLOCK_SKEW);
		expect(orderTime(8n + MAX_CLOCK_SKEW, 7n)).toBe(7n);
	});

	it("ignores the current record's time when it is too far ahead of the clock", () => {
		expect(comparableTime(undefined, 7n)).toBe(undefined);
		expect(comparableTime(7n + MAX_CLOCK_SKEW, 7n)).toBe(7n + MAX_CLOCK_SKEW);
		expect(comparableTime(8n + MAX_CLOCK_SKEW, 7n)).toBe(undefined);
	});

	it("ends with the same record as a simple model of the rules", () => {
		fc.assert(
			fc.property(records, (arriving) => {
				// The model: a record replaces the current one if it beats it.
				const beats = (a: (typeof arriving)[number], b: (typeof arriving)[number]) => {
					if (a.time === undefined || b.time === undefined) return b.status !== Status.DELETING;
					return b.status === Status.DELETING ? a.time > b.time : a.time >= b.time;
				};
				const expected = arriving.reduce((current, next) => (beats(next, current) ? next : current));
				expect(settle(arriving)).toBe(expected);
			}),
		);
	});

	it("lets the next record become current once the clocks are right", () => {
		fc.assert(
			fc.property(records, status, (arriving, its) => {
				const receivedAt = BigInt(arriving.length) * minute + MAX_CLOCK_SKEW;
				const next = { status: its, time: orderTime(receivedAt, receivedAt) };
				const before = settle(arriving);
				fc.pre(before?.status !== Status.DELETING || before.time !== undefined);
				expect(decide(before, next).current).toBe(true);
			}),
		);
	});
});
