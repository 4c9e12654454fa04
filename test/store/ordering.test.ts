import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type CurrentState, decide } from "../../src/store/ordering.ts";

const statuses = ["idle", "running", "paused", "finished", "deleting"];
const time = fc.option(fc.bigInt({ min: -5n, max: 5n }), { nil: undefined });
const state: fc.Arbitrary<CurrentState> = fc.record({ status: fc.constantFrom(...statuses), updatedAt: time });

/** The record that is current after all of these arrived in their order. */
function settle(arriving: readonly CurrentState[]): CurrentState | undefined {
	let current: CurrentState | undefined;
	for (const next of arriving) if (decide(current, next).current) current = next;
	return current;
}

describe("decide", () => {
	it.each([
		[undefined, { status: "idle", updatedAt: 1n }, { current: true, change: "started" }],
		[undefined, { status: "paused", updatedAt: 1n }, { current: true, change: "started" }],
		[undefined, { status: "deleting", updatedAt: 1n }, { current: true, change: "deleted" }],
		[
			{ status: "idle", updatedAt: 1n },
			{ status: "running", updatedAt: 2n },
			{ current: true, change: "updated" },
		],
		[
			{ status: "idle", updatedAt: 1n },
			{ status: "idle", updatedAt: 2n },
			{ current: true, change: "updated" },
		],
		[
			{ status: "idle", updatedAt: 1n },
			{ status: "paused", updatedAt: 2n },
			{ current: true, change: "paused" },
		],
		[
			{ status: "paused", updatedAt: 1n },
			{ status: "paused", updatedAt: 2n },
			{ current: true, change: "updated" },
		],
		[
			{ status: "paused", updatedAt: 1n },
			{ status: "running", updatedAt: 2n },
			{ current: true, change: "resumed" },
		],
		[
			{ status: "paused", updatedAt: 1n },
			{ status: "deleting", updatedAt: 2n },
			{ current: true, change: "deleted" },
		],
		[
			{ status: "idle", updatedAt: 2n },
			{ status: "paused", updatedAt: 1n },
			{ current: false, change: "updated" },
		],
		[
			{ status: "idle", updatedAt: 2n },
			{ status: "paused", updatedAt: 2n },
			{ current: true, change: "paused" },
		],
		[
			{ status: "idle", updatedAt: undefined },
			{ status: "idle", updatedAt: 2n },
			{ current: true, change: "updated" },
		],
		[
			{ status: "idle", updatedAt: 2n },
			{ status: "idle", updatedAt: undefined },
			{ current: true, change: "updated" },
		],
		[
			{ status: "deleting", updatedAt: 2n },
			{ status: "idle", updatedAt: 2n },
			{ current: false, change: "updated" },
		],
		[
			{ status: "deleting", updatedAt: 2n },
			{ status: "idle", updatedAt: undefined },
			{ current: false, change: "updated" },
		],
		[
			{ status: "deleting", updatedAt: 2n },
			{ status: "idle", updatedAt: 3n },
			{ current: true, change: "updated" },
		],
		[
			{ status: "deleting", updatedAt: 2n },
			{ status: "deleting", updatedAt: 1n },
			{ current: false, change: "updated" },
		],
		[
			{ status: "deleting", updatedAt: 2n },
			{ status: "deleting", updatedAt: 2n },
			{ current: true, change: "updated" },
		],
	] as const)("from %o, %o is %o", (current, arriving, expected) => {
		expect(decide(current, arriving)).toEqual(expected);
	});

	it("ends with the newest record, in whatever order distinct times arrive", () => {
		const distinct = fc
			.uniqueArray(fc.bigInt({ min: 0n, max: 1_000n }), { minLength: 1, maxLength: 12 })
			.chain((times) =>
				fc.tuple(
					...times.map((updatedAt) =>
						fc.record({ status: fc.constantFrom(...statuses), updatedAt: fc.constant(updatedAt) }),
					),
				),
			);
		fc.assert(
			fc.property(distinct, (arriving) => {
				const newest = arriving.toSorted((a, b) => Number(a.updatedAt - b.updatedAt)).at(-1);
				expect(settle(arriving)).toEqual(newest);
			}),
		);
	});

	it("never lets an older record become current", () => {
		fc.assert(
			fc.property(state, state, (current, arriving) => {
				const older =
					current.updatedAt !== undefined && arriving.updatedAt !== undefined && arriving.updatedAt < current.updatedAt;
				fc.pre(older);
				expect(decide(current, arriving)).toEqual({ current: false, change: "updated" });
			}),
		);
	});

	it("gives up a deletion only for a record that is certainly newer", () => {
		fc.assert(
			fc.property(time, state, (updatedAt, arriving) => {
				fc.pre(arriving.status !== "deleting");
				const newer = updatedAt !== undefined && arriving.updatedAt !== undefined && arriving.updatedAt > updatedAt;
				expect(decide({ status: "deleting", updatedAt }, arriving).current).toBe(newer);
			}),
		);
	});

	it("lets the later arrival win where times are equal or cannot be compared", () => {
		fc.assert(
			fc.property(state, state, (current, arriving) => {
				fc.pre(current.status !== "deleting" || arriving.status === "deleting");
				fc.pre(
					current.updatedAt === undefined ||
						arriving.updatedAt === undefined ||
						current.updatedAt === arriving.updatedAt,
				);
				expect(decide(current, arriving).current).toBe(true);
			}),
		);
	});
});
