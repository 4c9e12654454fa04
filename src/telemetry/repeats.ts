/** Milliseconds after which repetitions are summed up. */
const WINDOW = 10_000;
/** Maximum number of causes that are counted separately at a time. */
const MAX_CAUSES = 100;
/** Maximum number of different values of a sample in a sum. */
const MAX_SAMPLES = 10;

/** Something that happened and may happen again for the same cause. */
export interface Occurrence<Event extends string> {
	/** Event under which repetitions are summed up. */
	readonly sum: Event;
	/** Identifies the cause, together with the names in `counts`. Clients may choose parts of it. */
	readonly cause: Readonly<Record<string, string | undefined>>;
	/**
	 * Coarser cause, for use when there are too many causes. It must have few values, and clients must not choose them.
	 */
	readonly group: Readonly<Record<string, string | undefined>>;
	/** Numbers to add up, such as how often each rule was broken. */
	readonly counts?: Readonly<Record<string, number>>;
	/** Values that differ between occurrences. A sum keeps the first 10 different ones of each name. */
	readonly samples?: Readonly<Record<string, readonly string[]>>;
}

/** Number of occurrences since the last line about a cause. */
export interface Sum<Event extends string> {
	readonly event: Event;
	/** The cause, or the group of several causes. */
	readonly cause: Occurrence<Event>["cause"];
	readonly count: number;
	/** Time of the last line about it. */
	readonly since: Date;
	readonly counts: Readonly<Record<string, number>>;
	readonly samples: Readonly<Record<string, readonly string[]>>;
}

/** Settings of {@link Repeats}. */
export interface RepeatOptions {
	/** Milliseconds between the first occurrence of a cause and the sum of its repetitions. 0 turns sums off. */
	readonly window?: number;
	/** Maximum number of causes that are counted separately at a time. Others are counted by group. */
	readonly maxCauses?: number;
}

/**
 * Detects the first occurrence of a cause and counts the repetitions. While a cause goes on, its sum is written once in
 * a window. A cause that did not occur for a whole window is forgotten, so that its next occurrence is a first one
 * again. The number of causes and groups bounds both memory and lines.
 */
export class Repeats<Event extends string> {
	readonly #write: (sum: Sum<Event>) => void;
	readonly #window: number;
	readonly #maxCauses: number;
	readonly #causes = new Map<string, Tally<Event>>();
	readonly #groups = new Map<string, Tally<Event>>();
	#timer: NodeJS.Timeout | undefined;

	/** @param write receives the sums that are due */
	constructor(write: (sum: Sum<Event>) => void, { window = WINDOW, maxCauses = MAX_CAUSES }: RepeatOptions = {}) {
		this.#write = write;
		this.#window = window;
		this.#maxCauses = maxCauses;
	}

	/** Returns whether an occurrence is the first one of its cause, which is to be logged in full. Counts all others. */
	isFirst(occurrence: Occurrence<Event>): boolean {
		if (this.#window === 0) return true;
		const { sum, cause, group, counts = {} } = occurrence;
		const key = JSON.stringify([sum, cause, Object.keys(counts).sort()]);
		const known = this.#causes.get(key);
		this.#timer ??= setTimeout(() => this.#endWindow(), this.#window).unref();
		if (known === undefined && this.#causes.size < this.#maxCauses) {
			this.#causes.set(key, new Tally(sum, cause));
			return true;
		}
		const ofGroup = () => this.#groups.getOrInsertComputed(JSON.stringify([sum, group]), () => new Tally(sum, group));
		const tally = known ?? ofGroup();
		tally.add(occurrence);
		return false;
	}

	/** Writes all sums, including those that are not due yet. */
	sumUp(): void {
		for (const tally of [...this.#causes.values(), ...this.#groups.values()]) {
			const sum = tally.take();
			if (sum !== undefined) this.#write(sum);
		}
	}

	#endWindow(): void {
		this.#timer = undefined;
		for (const tallies of [this.#causes, this.#groups])
			for (const [key, tally] of tallies) if (tally.count === 0) tallies.delete(key);
		this.sumUp();
		if (this.#causes.size + this.#groups.size > 0)
			this.#timer = setTimeout(() => this.#endWindow(), this.#window).unref();
	}
}

/** Counts of one cause or group. */
class Tally<Event extends string> {
	count = 0;
	readonly #event: Event;
	readonly #cause: Occurrence<Event>["cause"];
	#since = new Date();
	#counts: Record<string, number> = {};
	#samples: Record<string, Set<string>> = {};

	constructor(event: Event, cause: Occurrence<Event>["cause"]) {
		this.#event = event;
		this.#cause = cause;
	}

	add({ counts = {}, samples = {} }: Occurrence<Event>): void {
		this.count += 1;
		for (const [name, count] of Object.entries(counts)) this.#counts[name] = (this.#counts[name] ?? 0) + count;
		for (const [name, values] of Object.entries(samples)) {
			if (values.length === 0) continue;
			const kept = this.#samples[name] ?? new Set();
			this.#samples[name] = kept;
			for (const value of values) if (kept.size < MAX_SAMPLES) kept.add(value);
		}
	}

	/** Returns the sum since the last call and resets it. Undefined when nothing was counted. */
	take(): Sum<Event> | undefined {
		if (this.count === 0) return undefined;
		const sum = {
			event: this.#event,
			cause: this.#cause,
			count: this.count,
			since: this.#since,
			counts: this.#counts,
			samples: Object.fromEntries(Object.entries(this.#samples).map(([name, values]) => [name, [...values]])),
		};
		this.count = 0;
		this.#since = new Date();
		this.#counts = {};
		this.#samples = {};
		return sum;
	}
}
