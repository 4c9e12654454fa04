import { hash, randomInt } from "node:crypto";
import fc from "fast-check";
import { onTestFailed } from "vitest";

/** Seed of all random tests: the environment variable `TEST_SEED`, or a random number. */
export const SEED = seedOf(process.env.TEST_SEED);

function seedOf(text: string | undefined): number {
	if (text === undefined || text === "") return randomInt(2 ** 31);
	const seed = Number(text);
	if (!Number.isSafeInteger(seed)) throw new Error(`TEST_SEED must be an integer, not ${text}`);
	return seed;
}

/** Sets the seed of the property tests in a file. fast-check prints it when a property fails. */
export function seedProperties(): void {
	fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: SEED });
}

/** A source of random choices, which are the same for the same seed. */
export class Random {
	readonly #name: string;
	#drawn = 0;

	private constructor(name: string) {
		this.#name = name;
	}

	/** Returns the choices of the running test. If the test fails, it prints how to repeat them. */
	static ofTest(): Random {
		onTestFailed(() => console.error(`Repeat the random choices of this test with TEST_SEED=${SEED}`));
		return new Random("");
	}

	/** Returns the choices of a program that prints the seed itself. */
	static ofSeed(): Random {
		return new Random("");
	}

	/** Returns choices that do not depend on other choices, for use by concurrent work. */
	of(name: string): Random {
		return new Random(`${this.#name}/${name}`);
	}

	/** Returns an integer from `least` to `bound`, without `bound`. */
	integer(least: number, bound: number): number {
		this.#drawn += 1;
		const drawn = hash("sha256", `${SEED}${this.#name} ${this.#drawn}`, "buffer").readUInt32BE();
		return least + (drawn % (bound - least));
	}

	/** Returns a random item. Undefined when there are none. */
	pick<Item>(items: readonly Item[]): Item | undefined {
		return items.length === 0 ? undefined : items[this.integer(0, items.length)];
	}

	/** Shuffles items in place. */
	shuffle(items: unknown[]): void {
		for (let last = items.length - 1; last > 0; last--) {
			const other = this.integer(0, last + 1);
			[items[last], items[other]] = [items[other], items[last]];
		}
	}
}
