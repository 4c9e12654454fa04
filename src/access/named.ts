import { ServiceError } from "../errors.ts";
import type { NewAuditEntry } from "../store/access.ts";
import { entryOf } from "./audit.ts";
import { type Principal, requireName } from "./keys.ts";

/** Maximum number of endpoints, and of budgets, of an owner, and of those without an owner. */
const MOST = 64;

/** Which endpoint or budget a caller means. */
export interface Named {
	readonly name: string;
	/** Empty for the owner of the caller. */
	readonly owner: string;
}

/** Who changes something, and the owner that limits what it sees. */
export type Caller = Pick<Principal, "name" | "owner">;

type Action = `${"endpoint" | "delivery" | "budget"}.${string}`;

interface NamedOptions<Row> {
	readonly kind: "endpoint" | "budget";
	/** Lists those of an owner by name; of all owners if it is undefined. */
	readonly list: (query: { readonly owner: string | undefined }) => Promise<readonly Row[]>;
	/** Called when a caller has changed one of this name. */
	readonly onChanged?: (action: Action, caller: Caller, name: string) => void;
}

/** What callers do with rows whose names are unique for an owner. A caller with an owner has those of its owner only. */
export class NamedRows<Row extends Named> {
	readonly #options: NamedOptions<Row>;

	constructor(options: NamedOptions<Row>) {
		this.#options = options;
	}

	/** Returns those that a caller may see, by owner and name. */
	async list({ owner }: Pick<Caller, "owner">): Promise<readonly Row[]> {
		return await this.#options.list({ owner });
	}

	/** @throws ServiceError `not_found` */
	async get(named: Named, caller: Pick<Caller, "owner">): Promise<Row> {
		const known = await this.#options.list({ owner: this.#ownerOf(named, caller) });
		const found = known.find(({ name }) => name === named.name);
		if (found === undefined) throw new ServiceError("not_found", `There is no such ${this.#options.kind}`);
		return found;
	}

	/**
	 * Returns the owner of a new one.
	 *
	 * @throws ServiceError `invalid_argument`, `already_exists`, `failed_precondition`, or `not_found` for another owner
	 */
	protected async ownerOfNew(named: Named, caller: Caller): Promise<string> {
		const owner = this.#ownerOf(named, caller);
		requireName("name", named.name);
		if (owner !== "") requireName("owner", owner);
		const { kind, list } = this.#options;
		const known = await list({ owner });
		if (known.some(({ name }) => name === named.name)) throw this.taken(named.name);
		if (known.length < MOST) return owner;
		throw new ServiceError("failed_precondition", `There are ${MOST} ${kind}s, which is the largest number`);
	}

	/** Writes a change with its entry of the audit. Returns the result, which is false or undefined if nothing was done. */
	protected async change<Result>(
		action: Action,
		caller: Caller,
		name: string,
		details: string,
		write: (audit: NewAuditEntry) => Promise<Result>,
	): Promise<Result> {
		const result = await write(entryOf(action, caller, name, details));
		if (result !== false && result !== undefined) this.#options.onChanged?.(action, caller, name);
		return result;
	}

	/** Returns the error for a name that an owner has already. */
	protected taken(name: string): ServiceError {
		const one = this.#options.kind === "endpoint" ? "an endpoint" : "a budget";
		return new ServiceError("already_exists", `There is ${one} with the name ${name}`);
	}

	#ownerOf({ owner }: Named, caller: Pick<Caller, "owner">): string {
		if (caller.owner === undefined) return owner;
		if (owner !== "" && owner !== caller.owner)
			throw new ServiceError("not_found", `There is no such ${this.#options.kind}`);
		return caller.owner;
	}
}
