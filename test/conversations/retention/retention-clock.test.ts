import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type ClockDifference, type Clocks, RetentionClock } from "../../../src/conversations/retention.ts";

const hour = 3_600_000;
const day = 24 * hour;
const year = 365 * day;
/** A time in 2026, in milliseconds since the Unix epoch. */
const start = 1_790_000_000_000;

/** A computer with a store, whose clock can be wrong and whose service can be restarted. */
class Computer {
	/** Difference between its clock and the right time, in milliseconds. */
	error = 0;
	time = start;
	kept: bigint | undefined;
	readonly doubts: (ClockDifference | undefined)[] = [];
	#clock = this.#started();

	restart(): void {
		this.#clock = this.#started();
	}

	/** Lets time pass while the service runs, then advances the retention time and returns it in milliseconds. */
	async run(milliseconds: number): Promise<number> {
		this.time += milliseconds;
		return Number(await this.#clock.advance()) / 1000;
	}

	#started(): RetentionClock {
		const since = this.time;
		const clocks: Clocks = { now: () => this.time + this.error, elapsed: () => this.time - since };
		const store = {
			getRetentionTime: async () => this.kept,
			saveRetentionTime: async (time: bigint) => {
				this.kept = time;
			},
		};
		return new RetentionClock(store, (doubt) => this.doubts.push(doubt), clocks);
	}
}

const micro = (milliseconds: number) => BigInt(milliseconds) * 1000n;

describe("the retention time", () => {
	test("equals a clock that is right", async () => {
		const computer = new Computer();
		for (const passed of [0, 60_000, 20, hour, 20 * day]) expect(await computer.run(passed)).toBe(computer.time);
		expect(computer.kept).toBe(micro(computer.time));
		expect(computer.doubts).toEqual([]);
	});

	test("equals a clock that was never set, and is stored only once the clock is set", async () => {
		const computer = new Computer();
		computer.error = -start;
		expect(await computer.run(hour)).toBe(hour);
		expect(computer.kept).toBe(undefined);
		computer.error = 0;
		expect(await computer.run(hour)).toBe(computer.time);
		expect(computer.kept).toBe(micro(computer.time));
		expect(computer.doubts).toEqual([]);
	});

	test("runs at double speed after the clock jumps ahead, reports that once, and is right when the clock is", async () => {
		const computer = new Computer();
		await computer.run(0);
		computer.error = 10 * year;
		expect(await computer.run(0)).toBe(start);
		expect(await computer.run(60_000)).toBe(start + 120_000);
		expect(await computer.run(day)).toBe(start + 120_000 + 2 * day);
		expect(computer.doubts).toEqual([{ clock: micro(start + 10 * year), retentionTime: micro(start) }]);
		computer.error = 0;
		expect(await computer.run(60_000)).toBe(computer.time);
		expect(await computer.run(2 * day)).toBe(computer.time);
		expect(computer.doubts.slice(1)).toEqual([undefined]);
	});

	test("continues from the stored time after each restart with a clock that is ahead", async () => {
		const computer = new Computer();
		await computer.run(0);
		computer.error = 10 * year;
		for (let count = 0; count < 5; count++) {
			computer.restart();
			expect(await computer.run(0)).toBe(start + count * 120_000);
			expect(await computer.run(60_000)).toBe(start + (count + 1) * 120_000);
		}
	});

	test("catches up after a downtime within as much time as the downtime took", async () => {
		const computer = new Computer();
		await computer.run(0);
		computer.time += 7 * day;
		computer.restart();
		expect(await computer.run(0)).toBe(start);
		expect(await computer.run(7 * day - 1)).toBe(start + 14 * day - 2);
		expect(await computer.run(day)).toBe(computer.time);
		expect(computer.doubts).toEqual([{ clock: micro(start + 7 * day), retentionTime: micro(start) }, undefined]);
	});

	test("equals a clock that is behind, and is at most twice the elapsed time behind once the clock is right", async () => {
		const computer = new Computer();
		await computer.run(0);
		computer.error = -30 * year;
		expect(await computer.run(hour)).toBe(computer.time - 30 * year);
		expect(computer.doubts).toHaveLength(1);
		computer.error = 0;
		expect(await computer.run(0)).toBe(start - 2 * hour);
		expect(await computer.run(3 * hour)).toBe(computer.time);
		expect(computer.doubts.slice(1)).toEqual([undefined]);
	});

	test("never runs more than twice as fast as time, and is never ahead of the clock", async () => {
		const step = fc.record({
			passed: fc.integer({ min: 0, max: 2 * day }),
			error: fc.integer({ min: -20 * year, max: 20 * year }),
			restart: fc.boolean(),
		});
		await fc.assert(
			fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
				const computer = new Computer();
				await computer.run(0);
				for (const { passed, error, restart } of steps) {
					computer.error = error;
					if (restart) computer.restart();
					const now = await computer.run(passed);
					expect(now).toBeLessThanOrEqual(start + 2 * (computer.time - start));
					expect(now).toBeLessThanOrEqual(computer.time + error);
				}
			}),
		);
	});

	test("is read from the store again after the store failed", async () => {
		let fails = true;
		const failure = new Error("the store is locked");
		const store = {
			getRetentionTime: async () => {
				if (fails) throw failure;
				return micro(start);
			},
			saveRetentionTime: async () => undefined,
		};
		const clocks = { now: () => start + 10 * year, elapsed: () => 0 };
		const clock = new RetentionClock(store, () => undefined, clocks);
		await expect(clock.advance()).rejects.toBe(failure);
		fails = false;
		expect(await clock.advance()).toBe(micro(start));
	});
});
