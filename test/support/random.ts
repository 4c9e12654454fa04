import { hash, randomInt } from "node:crypto";
import fc from "fast-check";
import { onTestFailed } from "vitest";

/** Seed of all random tests: the environment variable `TEST_SEED`, or one at random. */
export const SEED = seedOf(process.env.TEST_SEED);

function seedOf(text: string | undefined): number {
	if (text === undefined || text === "") return randomInt(2 ** 31);
	const seed = Number(text);
	if (!Number.isSafeInteger(seed)) throw new Error(`TEST_SEED must be an integer, not ${text}`);
	return seed;
}

/** Lets the properties of a test file start from the seed. fast-check prints it when one of them fails. */
export function seedProperties(): void {
	fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: SEED });
}

/** A source of random choices, which are the same again for the same seed. */
export class Random {
	readonly #name: string;
	#drawn = 0;

	private constructor(name: string) {
		this.#name = name;
	}

	/** The choices of the running test: when it fails, it prints how to repeat them. */
	static ofTest(): Random {
		onTestFailed(() => console.error(`Repeat the random choices of this test with TEST_SEED=${SEED}`));
		return new Random("");
	}

	/** The choices of a program that prints the seed itself. */
	static ofSeed(): Random {
		return new Random("");
	}

	/** Choices that do not depend on how many others were asked for: for what goes on at the same time. */
	of(name: string): Random {
		return new Random(`${this.#name}/${name}`);
	}

	/** An integer from `least` up to, but without, `bound`. */
	integer(least: number, bound: number): number {
		this.#drawn += 1;
		const drawn = hash("sha256", `${SEED}${this.#name} ${this.#drawn}`, "buffer").readUInt32BE();
		return least + (drawn % (bound - least));
	}

	/** One of some items; undefined when there are none. */
	pick<Item>(items: readonly Item[]): Item | undefined {
		return items.length === 0 ? undefined : items[this.integer(0, items.length)];
	}

	/** Puts items in a random order. */
	shuffle(items: unknown[]): void {
		for (let last = items.length - 1; last > 0; last--) {
			const other = this.integer(0, last + 1);
			[items[last], items[other]] = [items[other], items[last]];
		}
	}
}
