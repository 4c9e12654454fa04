import type { Query } from "./transaction.ts";

/** Builds a statement from pieces, and collects the values of its parameters. */
export class Sql {
	readonly #values: unknown[] = [];

	/** Adds a value and returns its placeholder. */
	value(value: unknown): string {
		this.#values.push(value);
		return `$${this.#values.length}`;
	}

	/** Returns the query of a statement that contains the placeholders. */
	query(text: string): Query {
		return { text, values: this.#values };
	}
}
