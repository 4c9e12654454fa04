/**
 * A map that forgets what was not used for longest once its entries weigh more than they may. The entry that was set
 * last stays, whatever it weighs.
 */
export class LruMap<Key, Value> {
	readonly #capacity: number;
	readonly #entries = new Map<Key, { readonly value: Value; readonly weight: number }>();
	#weight = 0;

	/** @param capacity most weight of all entries together, in whatever unit `set` is told weights in */
	constructor(capacity: number) {
		this.#capacity = capacity;
	}

	/** Most recently used from now on, if it is there. */
	get(key: Key): Value | undefined {
		const entry = this.#entries.get(key);
		if (entry === undefined) return undefined;
		this.#entries.delete(key);
		this.#entries.set(key, entry);
		return entry.value;
	}

	set(key: Key, value: Value, weight: number): void {
		this.delete(key);
		this.#entries.set(key, { value, weight });
		this.#weight += weight;
		for (const oldest of this.#entries.keys()) {
			if (this.#weight <= this.#capacity || this.#entries.size === 1) break;
			this.delete(oldest);
		}
	}

	delete(key: Key): void {
		const entry = this.#entries.get(key);
		if (entry === undefined) return;
		this.#entries.delete(key);
		this.#weight -= entry.weight;
	}
}
