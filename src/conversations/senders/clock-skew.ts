/**
 * Judges the clocks of senders by the delays of their batches of events: the time from a batch's newest event, as its
 * sender wrote it, to its arrival. A batch that waited or was sent again has a long delay, so only the least one counts.
 * All times are microseconds.
 */

const MINUTE = 60_000_000n;
/** Time zones differ by multiples of this. */
const STEP = 15n * MINUTE;
/** Maximum distance from a multiple of {@link STEP}: the usual delay, and what a clock may be wrong. */
const TOLERANCE = 2n * MINUTE;
/** Number of batches from which on a clock is judged. */
export const MIN_BATCHES = 20;
/** Number of the latest batches by which a clock is judged. */
const MAX_BATCHES = 100;

/** The delays of the latest batches of each sender, since the service started. */
export class ClockSkews {
	/** By the names of senders: the delays in the order of arrival. */
	readonly #delays = new Map<string, bigint[]>();
	/** By the names of senders: the skew that was reported last. */
	readonly #reported = new Map<string, bigint>();
	readonly #onSkew: (sender: string, skew: bigint) => void;

	/** @param onSkew called once when a sender's clock has a skew, and again when it has another one */
	constructor(onSkew: (sender: string, skew: bigint) => void) {
		this.#onSkew = onSkew;
	}

	/** Adds the delay of a batch. */
	add(sender: string, delay: bigint): void {
		const delays = this.#delays.getOrInsertComputed(sender, () => []);
		delays.push(delay);
		if (delays.length > MAX_BATCHES) delays.shift();
		const skew = clockSkew(delays);
		if (skew === undefined || skew === 0n || skew === this.#reported.get(sender)) return;
		this.#reported.set(sender, skew);
		this.#onSkew(sender, skew);
	}

	/** Returns the skew of a sender's clock as {@link clockSkew} does. */
	of(sender: string): bigint | undefined {
		return clockSkew(this.#delays.get(sender) ?? []);
	}
}

/**
 * Returns by how much the times of events lie before their arrival, beyond the usual delay: a multiple of 15 minutes,
 * negative if they lie after it.
 *
 * @param delays those of the sender's latest batches
 * @returns 0 when the least delay is not close to another multiple; undefined for fewer than {@link MIN_BATCHES}
 */
export function clockSkew(delays: readonly bigint[]): bigint | undefined {
	if (delays.length < MIN_BATCHES) return undefined;
	const least = Math.min(...delays.map(Number));
	const nearest = Math.round(least / Number(STEP));
	return Math.abs(least - nearest * Number(STEP)) <= Number(TOLERANCE) ? BigInt(nearest) * STEP : 0n;
}

/**
 * Returns the time zone of a sender whose times without an offset are wrong by a skew.
 *
 * @param skew as {@link clockSkew} returns it
 * @param timeZone time zone that its times are read in
 * @param now milliseconds of Unix time
 * @returns a zone with a fixed offset where there is one, otherwise one that has this offset now. Undefined when no zone
 *   has it, so that the clock itself is wrong
 */
export function fittingTimeZone(skew: bigint, timeZone: string, now: number): string | undefined {
	const instant = Temporal.Instant.fromEpochMilliseconds(now);
	const offsetOf = (zone: string) => BigInt(instant.toZonedDateTimeISO(zone).offsetNanoseconds / 1000);
	const offset = offsetOf(timeZone) - skew;
	const hours = offset / (60n * MINUTE);
	if (hours * 60n * MINUTE !== offset)
		return Intl.supportedValuesOf("timeZone").find((zone) => offsetOf(zone) === offset);
	if (hours === 0n) return "UTC";
	// In these names, the zones west of UTC have a plus sign.
	if (hours < 0n) return hours < -12n ? undefined : `Etc/GMT+${-hours}`;
	return hours > 14n ? undefined : `Etc/GMT-${hours}`;
}
