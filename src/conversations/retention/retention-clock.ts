import type { Store } from "../../store/store.ts";
import type { Logger } from "../../telemetry/log.ts";

/** The computer's clocks, in milliseconds. */
export interface Clocks {
	/** Since the Unix epoch. An operator can set it to any time. */
	readonly now: () => number;
	/** Since an arbitrary moment. Advances evenly while the process runs. */
	readonly elapsed: () => number;
}

/** Maximum speed at which the time of retention follows the clock, as a multiple of elapsed time. */
const MAX_SPEED = 2;
/** Difference of the clock from the time of retention above which it is reported, in microseconds. */
const TOLERANCE = 3_600_000_000n;
/** The start of 2026 in milliseconds since the Unix epoch. A clock with an earlier time was never set. */
const EARLIEST = Date.UTC(2026, 0, 1);
/** Minimum milliseconds between two writes of the time of retention to the store. */
const SAVE_INTERVAL = 30_000;

/**
 * The time by which retention determines the age of updates and events. While the service runs, it follows the clock at
 * no more than twice the speed of elapsed time, and the store keeps it across restarts. So a clock that jumps ahead
 * removes nothing before the service has run for half of the retention period.
 */
export class RetentionClock {
	readonly #store: Pick<Store, "getRetentionTime" | "saveRetentionTime">;
	readonly #onDoubt: Logger["clockDoubtChanged"];
	readonly #clocks: Clocks;
	#last: { readonly time: bigint; readonly at: number } | undefined;
	#savedAt = Number.NEGATIVE_INFINITY;
	#isDoubted = false;

	constructor(
		store: Pick<Store, "getRetentionTime" | "saveRetentionTime">,
		onDoubt: Logger["clockDoubtChanged"],
		clocks: Clocks = { now: Date.now, elapsed: () => performance.now() },
	) {
		this.#store = store;
		this.#onDoubt = onDoubt;
		this.#clocks = clocks;
	}

	/**
	 * Moves the time of retention towards the clock. The first call continues from the time in the store, or from the
	 * clock when the store has none.
	 *
	 * @returns the earlier of the time of retention and the clock, in microseconds since the Unix epoch
	 * @throws ServiceError of the store; the next call tries again
	 */
	async advance(): Promise<bigint> {
		const clock = BigInt(Math.trunc(this.#clocks.now())) * 1000n;
		// Not stored, because the time of retention would need decades to catch up.
		if (this.#last === undefined && this.#clocks.now() < EARLIEST) return clock;
		const at = this.#clocks.elapsed();
		const last = this.#last ?? { time: (await this.#store.getRetentionTime()) ?? clock, at };
		const maxStep = BigInt(Math.trunc((at - last.at) * 1000 * MAX_SPEED));
		const time = clamp(clock, last.time - maxStep, last.time + maxStep);
		this.#last = { time, at };
		if (at - this.#savedAt >= SAVE_INTERVAL) {
			await this.#store.saveRetentionTime(time);
			this.#savedAt = at;
		}
		const distance = clock > time ? clock - time : time - clock;
		const isDoubted = distance > TOLERANCE;
		if (isDoubted !== this.#isDoubted) this.#onDoubt(isDoubted ? { clock, retentionTime: time } : undefined);
		this.#isDoubted = isDoubted;
		return time < clock ? time : clock;
	}
}

function clamp(value: bigint, min: bigint, max: bigint): bigint {
	if (value < min) return min;
	return value > max ? max : value;
}
