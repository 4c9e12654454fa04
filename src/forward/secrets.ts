import { createHmac, randomBytes } from "node:crypto";
import type { SealedBytes } from "../record/secrets/cipher.ts";

/** The secrets of endpoints, and the signatures of Standard Webhooks 1.0. */

const PREFIX = "whsec_";
const BYTES = 32;
/** Milliseconds for which a former secret signs beside its successor. */
const OVERLAP = 24 * 3_600_000;
/** Maximum number of secrets that sign together. */
const MAX_SECRETS = 4;

interface Secret {
	readonly secret: string;
	/** Milliseconds since the Unix epoch; null for the present one. */
	readonly until: number | null;
}

export function newSecret(): string {
	return `${PREFIX}${randomBytes(BYTES).toString("base64")}`;
}

/** Seals and opens the secrets of endpoints with ENCRYPTION_KEY. Times are milliseconds since the Unix epoch. */
export class EndpointSecrets {
	readonly #sealed: SealedBytes;

	constructor(sealed: SealedBytes) {
		this.#sealed = sealed;
	}

	get canSeal(): boolean {
		return this.#sealed.canSeal;
	}

	/** Returns the stored form of a new secret, which takes the place of the present one, if there is one. */
	withNew(endpoint: string, stored: Uint8Array | undefined, secret: string, now: number): Uint8Array {
		const former = stored === undefined ? [] : this.#open(endpoint, stored, now);
		const ending = former.map((one) => ({ ...one, until: one.until ?? now + OVERLAP }));
		const secrets: readonly Secret[] = [{ secret, until: null }, ...ending].slice(0, MAX_SECRETS);
		return this.#sealed.seal(Buffer.from(JSON.stringify(secrets)), purposeOf(endpoint));
	}

	/**
	 * Returns the headers that sign a message.
	 *
	 * @throws ServiceError `data_loss` when the secrets cannot be opened
	 */
	sign(endpoint: string, stored: Uint8Array, id: string, body: string, now: number): Readonly<Record<string, string>> {
		const timestamp = Math.floor(now / 1000);
		const signatures = this.#open(endpoint, stored, now).map(({ secret }) => {
			const key = Buffer.from(secret.slice(PREFIX.length), "base64");
			return `v1,${createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64")}`;
		});
		return { "webhook-id": id, "webhook-timestamp": String(timestamp), "webhook-signature": signatures.join(" ") };
	}

	/** Returns the secrets that still sign. */
	#open(endpoint: string, stored: Uint8Array, now: number): readonly Secret[] {
		const opened = this.#sealed.open(stored, purposeOf(endpoint));
		const parsed: unknown = JSON.parse(opened.toString("utf8"));
		if (!Array.isArray(parsed)) throw new TypeError("secrets are no list");
		return parsed
			.map(({ secret, until }: Readonly<Record<string, unknown>>) => {
				return { secret: String(secret), until: until === null ? null : Number(until) };
			})
			.filter(({ until }) => until === null || until > now);
	}
}

function purposeOf(endpoint: string): string {
	return `secret of endpoint ${endpoint}`;
}
