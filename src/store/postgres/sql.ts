import type { Query } from "./transaction.ts";

/** Puts a statement together from pieces, and keeps the values of its parameters. */
export class Sql {
	readonly #values: unknown[] = [];

	/** Adds a value; gives its placeholder. */
	value(value: unknown): string {
		this.#values.push(value);
		return `$${this.#values.length}`;
	}

	/** The statement whose text has the placeholders. */
	query(text: string): Query {
		return { text, values: this.#values };
	}
}
