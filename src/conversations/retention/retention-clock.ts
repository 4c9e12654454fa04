import type { Store } from "../../store/store.ts";
import type { Log } from "../../telemetry/log.ts";

/** The computer's clocks, in milliseconds. */
export interface Clocks {
	/** Since the Unix epoch. Can be set to anything. */
	readonly now: () => number;
	/** Since some moment. Goes on evenly while the process runs. */
	readonly elapsed: () => number;
}

/** How many times as fast as time passes the time of retention follows the clock. */
const SPEED = 2;
/** How far apart the clock and the time of retention may be before that is told, in microseconds. */
const TOLERANCE = 3_600_000_000n;
/** The start of 2026 in milliseconds since the Unix epoch. A clock that says less was never set. */
const EARLIEST = Date.UTC(2026, 0, 1);
/** How often the time of retention is kept, in milliseconds. */
const KEEP_INTERVAL = 30_000;

/**
 * The time by which retention judges how old something is. It follows the clock no faster than twice the time for which
 * the service runs, and the store keeps it from one run to the next. So a clock that jumps ahead removes nothing before
 * the service has run for half of what was to be kept.
 */
export class RetentionClock {
	readonly #store: Pick<Store, "clock" | "keepClock">;
	readonly #onDoubt: Log["clockDoubt"];
	readonly #clocks: Clocks;
	#last: { readonly time: bigint; readonly at: number } | undefined;
	#keptAt = Number.NEGATIVE_INFINITY;
	#isDoubted = false;

	constructor(
		store: Pick<Store, "clock" | "keepClock">,
		onDoubt: Log["clockDoubt"],
		clocks: Clocks = { now: Date.now, elapsed: () => performance.now() },
	) {
		this.#store = store;
		this.#onDoubt = onDoubt;
		this.#clocks = clocks;
	}

	/**
	 * Lets the time follow the clock. The first call goes on from what the store has kept, or from the clock when it has
	 * kept nothing.
	 *
	 * @returns the time of retention, or the clock's if that is earlier, in microseconds since the Unix epoch
	 * @throws ServiceError of the store; then the next call tries again
	 */
	async advance(): Promise<bigint> {
		const clock = BigInt(Math.trunc(this.#clocks.now())) * 1000n;
		// Not kept: the time of retention would need decades to catch up.
		if (this.#last === undefined && this.#clocks.now() < EARLIEST) return clock;
		const at = this.#clocks.elapsed();
		const last = this.#last ?? { time: (await this.#store.clock()) ?? clock, at };
		const most = BigInt(Math.trunc((at - last.at) * 1000 * SPEED));
		const time = clamp(clock, last.time - most, last.time + most);
		this.#last = { time, at };
		if (at - this.#keptAt >= KEEP_INTERVAL) {
			await this.#store.keepClock(time);
			this.#keptAt = at;
		}
		const distance = clock > time ? clock - time : time - clock;
		const isDoubted = distance > TOLERANCE;
		if (isDoubted !== this.#isDoubted) this.#onDoubt(isDoubted ? { clock, retentionTime: time } : undefined);
		this.#isDoubted = isDoubted;
		return time < clock ? time : clock;
	}
}

function clamp(value: bigint, least: bigint, most: bigint): bigint {
	if (value < least) return least;
	return value > most ? most : value;
}
