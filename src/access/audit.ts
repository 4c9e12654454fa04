import type { AuditEntry, AuditQuery, NewAuditEntry } from "../store/access.ts";
import { idDigest } from "../store/erasure.ts";
import type { Store } from "../store/store.ts";
import type { Principal } from "./keys.ts";

/** What the audit names. Endpoints and budgets have further actions. */
type AuditAction =
	| "key.created"
	| "key.revoked"
	| "conversations.assigned"
	| "conversation.erased"
	| "conversation.paused"
	| "refused_posts.replayed"
	| "secrets.read"
	| `endpoint.${string}`
	| `delivery.${string}`
	| `budget.${string}`;

export type AuditedCaller = Pick<Principal, "name"> & Partial<Pick<Principal, "owner">>;

/** Returns an entry that is written with its act, of the present time. The subject is as for {@link Audit.add}. */
export function entryOf(
	action: AuditAction,
	{ name, owner = "" }: AuditedCaller,
	subject: string,
	details = "",
): NewAuditEntry {
	return { at: BigInt(Date.now()) * 1000n, action, caller: name, owner, subject, details };
}

/** Writes down who did what, where it is not written with the act itself, and lists it. */
export class Audit {
	readonly #store: Pick<Store, "tables">;

	constructor(store: Pick<Store, "tables">) {
		this.#store = store;
	}

	/**
	 * Adds an entry. Resolves when it is on disk.
	 *
	 * @param subject a name, or for a conversation the SHA-256 of its id, so that an erasure need not change the entry
	 */
	async add(action: AuditAction, caller: AuditedCaller, subject: string, details = ""): Promise<void> {
		await this.#store.tables.write.addAudit(entryOf(action, caller, subject, details));
	}

	async list(query: AuditQuery): Promise<readonly AuditEntry[]> {
		return await this.#store.tables.read.listAudit(query);
	}

	/** Adds an entry about a conversation; an empty id stands for many. */
	async addOfConversation(action: AuditAction, caller: AuditedCaller, id: string, details = ""): Promise<void> {
		await this.add(action, caller, id === "" ? "" : idDigest(id.toLowerCase()), details);
	}
}
