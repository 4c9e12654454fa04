import { type CallSignal, ServiceError, withConversation } from "../../errors.ts";
import type { IntakeCalls } from "../../intake/record-intake.ts";
import { releaseWhole } from "../../memory.ts";
import type { AppendedUpdate, NewUpdate } from "../../store/entries.ts";
import { ownerRefusal, type Poster } from "../../store/owners.ts";
import type { Store } from "../../store/store.ts";
import type { EventIngest } from "./event-ingest.ts";

/** Stores conversation updates, for every transport that receives them. */
export type Ingest = ReturnType<typeof ingestOf>;

export function ingestOf(
	store: Pick<Store, "append" | "get" | "getOwnership">,
	intake: Pick<IntakeCalls, "fromJson" | "fromRequest" | "fromFetched">,
	events: Pick<EventIngest, "applyUnappliedEvents">,
) {
	return { json, request, fetched };

	/**
	 * Stores a record that arrived as JSON. Resolves when it is on disk and later stored events have been applied to it.
	 * Then the memory of the body is released; after a failure the body is intact.
	 *
	 * @param signal nothing is stored if it fires before the record has been checked; later as for `Store.append`
	 * @param receivedAt when the record arrived, in microseconds since the Unix epoch. Default: now
	 * @throws ServiceError `invalid_record`; `permission_denied` when the conversation belongs to another owner; `unavailable`
	 *   or `internal` when nothing was stored, or when the events could not be applied, which is done later
	 */
	async function json(body: Buffer, poster: Poster, signal: CallSignal, receivedAt?: bigint): Promise<AppendedUpdate> {
		const update = await checked(intake.fromJson(body, signal), poster);
		const appended = await append({ ...update, poster, receivedAt: receivedAt ?? update.receivedAt }, signal);
		releaseWhole(body);
		return appended;
	}

	/** As `json`, with an encoded IngestConversationRequest. Throws also `invalid_argument` when the bytes are none. */
	async function request(
		request: Uint8Array,
		poster: Poster,
		signal: CallSignal,
		receivedAt?: bigint,
	): Promise<AppendedUpdate> {
		const update = await checked(intake.fromRequest(request, signal), poster);
		const appended = await append({ ...update, poster, receivedAt: receivedAt ?? update.receivedAt }, signal);
		releaseWhole(request);
		return appended;
	}

	/**
	 * Stores a record that was fetched from the agent server, with the secrets of the stored one, if its conversation has none,
	 * or an older one, or begins again with it. Otherwise it counts as a duplicate. Resolves and throws as `json` does; throws
	 * also `data_loss` when the stored record cannot be read.
	 */
	async function fetched(
		conversationId: string,
		body: Buffer,
		poster: Poster,
		signal: CallSignal,
	): Promise<AppendedUpdate> {
		const stored = (await store.get(conversationId))?.record;
		if (stored !== undefined && "unreadable" in stored) throw new ServiceError("data_loss", stored.unreadable);
		const update = await intake.fromFetched({ body, present: stored?.bytes }, signal);
		if (update.conversationId !== conversationId)
			throw new ServiceError("invalid_record", "the fetched record has another id", { conversationId });
		return await append({ ...update, poster, isFetched: true }, signal);
	}

	/** Awaits a record. For a key with an owner, an invalid one of another owner's conversation is refused as a valid one. */
	async function checked(record: Promise<NewUpdate>, poster: Poster): Promise<NewUpdate> {
		try {
			return await record;
		} catch (error) {
			if (poster.owner === undefined || !(error instanceof ServiceError)) throw error;
			const { conversationId } = error;
			if (conversationId === undefined) throw error;
			throw ownerRefusal(poster, await store.getOwnership(conversationId)) ?? error;
		}
	}

	async function append(update: NewUpdate, signal: CallSignal): Promise<AppendedUpdate> {
		// The update must not be used after `append`, which takes over its memory.
		const { conversationId } = update;
		try {
			const appended = await store.append(update, signal);
			if (appended.hasUnappliedEvents) await events.applyUnappliedEvents(conversationId);
			return appended;
		} catch (error) {
			throw withConversation(error, conversationId);
		}
	}
}
