import { hash, randomInt } from "node:crypto";
import fc from "fast-check";
import { onTestFailed } from "vitest";

/** Seed of all random tests: the environment variable `TEST_SEED`, or one at random. */
const SEED = seedOf(process.env.TEST_SEED);

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

/** A source of random choices that are the same again for the same seed, as far as they are asked for in one order. */
export class Random {
	#drawn = 0;

	/** To be called in a test: when the test fails, it prints how to repeat its choices. */
	constructor() {
		onTestFailed(() => console.error(`Random choices: repeat them with TEST_SEED=${SEED}`));
	}

	/** An integer from `least` up to, but without, `bound`. */
	integer(least: number, bound: number): number {
		this.#drawn += 1;
		const drawn = hash("sha256", `${SEED} ${this.#drawn}`, "buffer").readUInt32BE();
		return least + (drawn % (bound - least));
	}

	/** One of some items; undefined when there are none. */
	pick<Item>(items: readonly Item[]): Item | undefined {
		return items.length === 0 ? undefined : items[this.integer(0, items.length)];
	}
}
