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
const state: fc.Arbitrary<OrderState> = fc.record({ status, time, lifeBeganAt: time });
/** A record without `created_at`. */
const of = (status: Status, time: bigint | undefined): OrderState => ({ status, time, lifeBeganAt: undefined });

/** Returns the record that is current after all records have arrived in this order. */
function settle<State extends OrderState>(arriving: readonly State[]): State | undefined {
	let current: State | undefined;
	for (const next of arriving) if (decide(current, next).current) current = next;
	return current;
}

describe("decide", () => {
	it.each([
		[undefined, of(Status.IDLE, 1n), { current: true, change: UpdateChange.STARTED }],
		[undefined, of(Status.PAUSED, 1n), { current: true, change: UpdateChange.STARTED }],
		[undefined, of(Status.DELETING, 1n), { current: true, change: UpdateChange.DELETED }],
		[of(Status.IDLE, 1n), of(Status.RUNNING, 2n), { current: true, change: UpdateChange.RUNNING }],
		[of(Status.IDLE, 1n), of(Status.IDLE, 2n), { current: true, change: UpdateChange.UPDATED }],
		[of(Status.IDLE, 1n), of(Status.PAUSED, 2n), { current: true, change: UpdateChange.PAUSED }],
		[of(Status.PAUSED, 1n), of(Status.PAUSED, 2n), { current: true, change: UpdateChange.UPDATED }],
		[of(Status.PAUSED, 1n), of(Status.RUNNING, 2n), { current: true, change: UpdateChange.RESUMED }],
		[of(Status.PAUSED, 1n), of(Status.DELETING, 2n), { current: true, change: UpdateChange.DELETED }],
		[of(Status.IDLE, 2n), of(Status.PAUSED, 1n), { current: false, change: UpdateChange.UPDATED }],
		[of(Status.IDLE, 2n), of(Status.PAUSED, 2n), { current: true, change: UpdateChange.PAUSED }],
		[of(Status.IDLE, undefined), of(Status.IDLE, 2n), { current: true, change: UpdateChange.UPDATED }],
		[of(Status.IDLE, 2n), of(Status.IDLE, undefined), { current: true, change: UpdateChange.UPDATED }],
		[of(Status.DELETING, 2n), of(Status.IDLE, 2n), { current: false, change: UpdateChange.UPDATED }],
		[of(Status.DELETING, 2n), of(Status.IDLE, undefined), { current: false, change: UpdateChange.UPDATED }],
		[of(Status.DELETING, 2n), of(Status.IDLE, 3n), { current: false, change: UpdateChange.UPDATED }],
		[of(Status.DELETING, 2n), of(Status.DELETING, 1n), { current: false, change: UpdateChange.UPDATED }],
		[of(Status.DELETING, 2n), of(Status.DELETING, 2n), { current: false, change: UpdateChange.UPDATED }],
		[of(Status.DELETING, 2n), of(Status.DELETING, undefined), { current: false, change: UpdateChange.UPDATED }],
		[of(Status.DELETING, 2n), of(Status.DELETING, 3n), { current: true, change: UpdateChange.UPDATED }],
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

	it.each([
		["a later life replaces a newer record", of(Status.RUNNING, 9n), 1n, of(Status.IDLE, 3n), 2n, UpdateChange.STARTED],
		["a later life replaces a deletion", of(Status.DELETING, 9n), 1n, of(Status.IDLE, 3n), 2n, UpdateChange.STARTED],
		["a later life can begin deleted", of(Status.IDLE, 9n), 1n, of(Status.DELETING, 3n), 2n, UpdateChange.DELETED],
		["an earlier life replaces nothing", of(Status.RUNNING, 1n), 2n, of(Status.DELETING, 3n), 1n, undefined],
	] as const)("%s", (_, current, its, arriving, other, change) => {
		expect(decide({ ...current, lifeBeganAt: its }, { ...arriving, lifeBeganAt: other })).toEqual({
			current: change !== undefined,
			change: change ?? UpdateChange.UPDATED,
		});
	});

	it("ends with the same record in every order, if times are distinct and either all or none have `created_at`", () => {
		const records: fc.Arbitrary<OrderState[]> = fc
			.uniqueArray(fc.bigInt({ min: 0n, max: 1_000n }), { minLength: 1, maxLength: 12 })
			.chain((times) =>
				fc.oneof(
					fc.tuple(
						...times.map((time) => fc.record({ status, time: fc.constant(time), lifeBeganAt: fc.nat(2).map(BigInt) })),
					),
					fc.tuple(
						...times.map((time) =>
							fc.record({
								status,
								time: fc.constant(time),
								lifeBeganAt: fc.constantFrom(undefined, 7n),
							}),
						),
					),
				),
			);
		const rank = ({ status, time, lifeBeganAt }: OrderState) =>
			(lifeBeganAt ?? 7n) * 10_000n + (status === Status.DELETING ? 5_000n : 0n) + (time ?? 0n);
		fc.assert(
			fc.property(records, (arriving) => {
				const expected = arriving.toSorted((a, b) => Number(rank(a) - rank(b))).at(-1);
				expect(settle(arriving)).toEqual(expected);
			}),
		);
	});

	it("never revives a deleted conversation in the same life, and never keeps it from being deleted", () => {
		fc.assert(
			fc.property(state, state, (current, arriving) => {
				const [a, b] = [current.lifeBeganAt, arriving.lifeBeganAt];
				fc.pre(a === undefined || b === undefined || a === b);
				const [before, after] = [current.status === Status.DELETING, arriving.status === Status.DELETING];
				fc.pre(before !== after);
				expect(decide(current, arriving).current).toBe(after);
			}),
		);
	});

	it("never lets an older record of the same life become current, except a deletion", () => {
		fc.assert(
			fc.property(state, state, (current, arriving) => {
				const older = current.time !== undefined && arriving.time !== undefined && arriving.time < current.time;
				fc.pre(older && (current.status === Status.DELETING || arriving.status !== Status.DELETING));
				const same = { ...arriving, lifeBeganAt: current.lifeBeganAt };
				expect(decide(current, same)).toEqual({ current: false, change: UpdateChange.UPDATED });
			}),
		);
	});

	it("lets the later arrival win when times are equal or missing", () => {
		fc.assert(
			fc.property(state, state, (current, arriving) => {
				fc.pre(current.status !== Status.DELETING);
				fc.pre(current.time === undefined || arriving.time === undefined || current.time === arriving.time);
				expect(decide(current, { ...arriving, lifeBeganAt: undefined }).current).toBe(true);
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
				return { ...of(its, orderTime(updatedAt, receivedAt)), receivedAt, updatedAt };
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
					const deletion = Number(a.status === Status.DELETING) - Number(b.status === Status.DELETING);
					if (deletion !== 0) return deletion > 0;
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
				const next = of(its, orderTime(receivedAt, receivedAt));
				const before = settle(arriving);
				fc.pre(before?.status !== Status.DELETING);
				expect(decide(before, next).current).toBe(true);
			}),
		);
	});
});
