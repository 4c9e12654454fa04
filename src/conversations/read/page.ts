import { createHash } from "node:crypto";
import { invalid, ServiceError } from "../../errors.ts";

const DEFAULT_SIZE = 50;
const MAX_SIZE = 1000;

/**
 * Maximum bytes of records on a page. gRPC clients refuse messages over 4 MiB by default. The difference is for the
 * fields around the records.
 */
export const MAX_PAGE_BYTES = 3.5 * 1024 * 1024;

export interface PageRequest {
	/** 0 means the default size. */
	readonly pageSize: number;
	/** Empty for the first page. */
	readonly pageToken: string;
}

/**
 * Returns the maximum number of entries on a page: 50 when 0 is requested, and never more than 1000. Throws
 * `invalid_argument` for a negative size.
 */
export function pageSize(requested: number): number {
	if (requested < 0) throw invalid("page_size", "must not be negative");
	return requested === 0 ? DEFAULT_SIZE : Math.min(requested, MAX_SIZE);
}

const DIGEST_DIGITS = 22;

/** The members of a request that determine the entries of a list and their order. A token is valid for one scope. */
export type ListScope = Readonly<Record<string, unknown>>;

/**
 * Returns the token of the page that follows a position: the position, and a digest of it and of the list's name and
 * scope, in base64url.
 *
 * The digest detects a token that was altered, or that belongs to another request. It needs no secret, because a token
 * gives no access: it names a position in a list that the access key of the request must permit anyway. So every replica
 * reads the tokens of every other one, also while access keys change, and no state is stored for them.
 *
 * @param position numbers from -2^63 to 2^63 - 1: a sequence number; in lists by another value, that value precedes it
 */
export function writePageToken(list: string, scope: ListScope, ...position: readonly bigint[]): string {
	const numbers = position.join(" ");
	const digest = createHash("sha256")
		.update(JSON.stringify([list, canonical(scope), numbers]))
		.digest("base64url")
		.slice(0, DIGEST_DIGITS);
	return Buffer.from(`${digest} ${numbers}`).toString("base64url");
}

/**
 * Returns the numbers that a token holds; none for the first page, whose token is empty.
 *
 * @throws ServiceError `invalid_argument` for a token that was altered, or made for another list or scope
 */
export function readPageToken(list: string, scope: ListScope, token: string): readonly bigint[] {
	if (token === "") return [];
	const [, ...texts] = Buffer.from(token, "base64url").toString().split(" ");
	const position = texts.map((text) => (/^-?\d{1,19}$/.test(text) ? BigInt.asIntN(64, BigInt(text)) : 0n));
	// Only the token that is written for these numbers holds them.
	if (writePageToken(list, scope, ...position) === token) return position;
	throw new ServiceError("invalid_argument", "page_token is not valid for this list and filter");
}

/** Returns equal values for equal scopes, whatever the order of their members. Undefined members count as absent. */
function canonical(value: unknown): unknown {
	if (typeof value === "bigint") return `${value}n`;
	if (typeof value !== "object" || value === null) return value;
	return Object.entries(value)
		.filter(([, member]) => member !== undefined)
		.sort(([a], [b]) => (a < b ? -1 : 1))
		.map(([name, member]) => [name, canonical(member)]);
}
