import type { Appended, NewUpdate, Store } from "../../store/store.ts";

/** Turns what arrives into updates, on a thread of its own or at once. See UpdateParser. */
export interface Intake {
	fromJson(body: Buffer): Promise<NewUpdate>;
	fromRequest(request: Uint8Array): Promise<NewUpdate>;
}

/** Stores conversation updates, for every transport that receives them. */
export class Ingest {
	readonly #store: Pick<Store, "append">;
	readonly #intake: Intake;

	constructor(store: Pick<Store, "append">, intake: Intake) {
		this.#store = store;
		this.#intake = intake;
	}

	/**
	 * Stores a record that arrived as JSON. Resolves when it is on disk.
	 *
	 * @throws ServiceError `invalid_record`; `unavailable` or `internal` when it could not be stored, and then nothing of
	 *   it was
	 */
	async json(body: Buffer): Promise<Appended> {
		return await this.#store.append(await this.#intake.fromJson(body));
	}

	/**
	 * Stores the record of an encoded IngestConversationRequest. Resolves when it is on disk.
	 *
	 * @param signal nothing is stored if it fires before the record is checked
	 * @throws ServiceError as `json` does, and `invalid_argument` when it is no such message; the signal's reason
	 */
	async request(request: Uint8Array, signal: AbortSignal): Promise<Appended> {
		const update = await this.#intake.fromRequest(request);
		signal.throwIfAborted();
		return await this.#store.append(update);
	}
}
