import { withConversation } from "../../errors.ts";
import type { Appended, NewUpdate, Store } from "../../store/store.ts";
import { assertAwaited, type CallSignal } from "./call-signal.ts";
import type { EventIngest } from "./event-ingest.ts";

/**
 * Turns what arrives into updates, on a thread of its own or at once. The bytes may be gone afterwards. See UpdateParser.
 */
export interface Intake {
	/** @param signal the body need not be looked at when it has fired */
	fromJson(body: Buffer, signal: CallSignal): Promise<NewUpdate>;
	/** @param signal the request need not be looked at when it has fired */
	fromRequest(request: Uint8Array, signal: CallSignal): Promise<NewUpdate>;
}

/** Stores conversation updates, for every transport that receives them. */
export class Ingest {
	readonly #store: Pick<Store, "append">;
	readonly #intake: Intake;
	readonly #events: Pick<EventIngest, "settle">;

	/** @param events applies to a posted record what events told later */
	constructor(store: Pick<Store, "append">, intake: Intake, events: Pick<EventIngest, "settle">) {
		this.#store = store;
		this.#intake = intake;
		this.#events = events;
	}

	/**
	 * Stores a record that arrived as JSON. Resolves when it is on disk, and what stored events tell that is later is
	 * applied to it. The body may be gone afterwards.
	 *
	 * @param signal nothing is stored if it has fired when the record is checked
	 * @throws ServiceError `invalid_record`; `unavailable` or `internal` when it could not be stored, and then nothing of
	 *   it was, or when the events could not be applied, which is done later; and as {@link assertAwaited}
	 */
	async json(body: Buffer, signal: CallSignal): Promise<Appended> {
		const update = await this.#intake.fromJson(body, signal);
		assertAwaited(signal);
		return await this.#append(update);
	}

	/**
	 * Stores the record of an encoded IngestConversationRequest. Resolves as `json` does. The request may be gone
	 * afterwards.
	 *
	 * @param signal nothing is stored if it has fired when the record is checked, or its deadline is over when the store
	 *   begins
	 * @throws ServiceError as `json` does, `invalid_argument` when it is no such message, and as {@link assertAwaited}
	 */
	async request(request: Uint8Array, signal: CallSignal): Promise<Appended> {
		const update = await this.#intake.fromRequest(request, signal);
		assertAwaited(signal);
		return await this.#append({ ...update, awaitedUntil: signal.deadline });
	}

	async #append(update: NewUpdate): Promise<Appended> {
		// The store takes the memory of the update over.
		const { conversationId } = update;
		try {
			const appended = await this.#store.append(update);
			if (appended.hasUnappliedEvents) await this.#events.settle(conversationId);
			return appended;
		} catch (error) {
			throw withConversation(error, conversationId);
		}
	}
}
