import type { EncodedUpdate } from "../../store/encoded-update.ts";
import type { Appended, Store } from "../../store/store.ts";

/** What makes updates of what arrives, on a thread of its own or at once. The methods are those of UpdateMaker. */
export interface Intake {
	fromJson(body: Buffer): Promise<EncodedUpdate>;
	fromRequest(request: Uint8Array): Promise<EncodedUpdate>;
}

/** The one handler of conversation updates, which every transport hands what it received. */
export class Ingest {
	readonly #store: Store;
	readonly #intake: Intake;

	constructor(store: Store, intake: Intake) {
		this.#store = store;
		this.#intake = intake;
	}

	/**
	 * Keeps a record that arrived as JSON. Resolves when it is on disk.
	 *
	 * @throws ServiceError `invalid_record`, or `unavailable` when it could not be stored; then nothing of it was kept
	 */
	async json(body: Buffer): Promise<Appended> {
		return await this.#store.append(await this.#intake.fromJson(body));
	}

	/**
	 * Keeps the record of an encoded IngestConversationRequest. Resolves when it is on disk.
	 *
	 * @throws ServiceError as `json` does, and `invalid_argument` when it is no such message
	 */
	async request(request: Uint8Array): Promise<Appended> {
		return await this.#store.append(await this.#intake.fromRequest(request));
	}
}
