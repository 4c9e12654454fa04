import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto";
import { ServiceError } from "../../errors.ts";

const VERSION = 1;
const POSITION_END = 9;
const MAC_BYTES = 16;

/** The members of a request that determine the entries of a list and their order. A token is valid for one scope. */
export type ListScope = Readonly<Record<string, unknown>>;

/**
 * Writes and reads page tokens. A token holds a version, a position in a list, and a MAC over both and over the list's
 * name and scope, in base64url.
 *
 * The key of the MAC is derived from the hashes of the service's access keys. So tokens stay valid after a restart and
 * on every replica with the same access keys, and no state is stored for them. When the access keys change, older
 * tokens are refused, and clients start their lists again. A forged token would be of no use: it names a position in a
 * list that the access key of the request must permit anyway.
 */
export class PageTokens {
	readonly #key: Uint8Array;

	/** @param keyHashes hashes of the access keys, in any order */
	constructor(keyHashes: readonly Uint8Array[]) {
		const secret = Buffer.concat(keyHashes.map((hash) => Buffer.from(hash)).sort(Buffer.compare));
		this.#key = new Uint8Array(hkdfSync("sha256", secret, "", "page token", 32));
	}

	/**
	 * Returns the token of the page that follows a position.
	 *
	 * @param list name of the list
	 * @param position sequence number, 0 to 2^63 - 1
	 */
	write(list: string, scope: ListScope, position: bigint): string {
		const content = Buffer.alloc(POSITION_END);
		content.writeUInt8(VERSION, 0);
		content.writeBigInt64BE(position, 1);
		return Buffer.concat([content, this.#mac(list, scope, content)]).toString("base64url");
	}

	/**
	 * Returns the position that a token holds.
	 *
	 * @throws ServiceError `invalid_argument` for a token that was altered, or made for another list or scope
	 */
	read(list: string, scope: ListScope, token: string): bigint {
		const bytes = Buffer.from(token, "base64url");
		const content = bytes.subarray(0, POSITION_END);
		// Decoding skips characters that are not base64url, so only encoding the bytes again detects them.
		const isWhole = bytes.length === POSITION_END + MAC_BYTES && bytes.toString("base64url") === token;
		if (!isWhole || !timingSafeEqual(this.#mac(list, scope, content), bytes.subarray(POSITION_END)))
			throw new ServiceError("invalid_argument", "page_token is not valid for this list and filter");
		return content.readBigInt64BE(1);
	}

	#mac(list: string, scope: ListScope, content: Uint8Array): Buffer {
		return createHmac("sha256", this.#key)
			.update(JSON.stringify([list, canonical(scope)]))
			.update(content)
			.digest()
			.subarray(0, MAC_BYTES);
	}
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
