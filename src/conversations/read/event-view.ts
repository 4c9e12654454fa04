import { create } from "@bufbuild/protobuf";
import {
	type ConversationEventEntry,
	ConversationEventEntrySchema,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import { ServiceError } from "../../errors.ts";
import { type EventFormat, toMessage } from "../../events/event-format.ts";
import { formatDateTime, fromMicroseconds } from "../../record/json/scalars.ts";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import type { StoredEvent } from "../../store/events.ts";
import { type OnUnreadable, tryRead } from "./record-opener.ts";

/** An event as its JSON text. */
export interface EventText extends Pick<StoredEvent, "sequence" | "receivedAt" | "happenedAt" | "sender" | "origin"> {
	/** Undefined when the stored event cannot be read. */
	readonly text: string | undefined;
}

/** Builds the views of stored events that readers receive. The view of an unreadable event lacks the event itself. */
export class EventViews {
	readonly #format: Pick<EventFormat, "open">;
	readonly #onUnreadable: OnUnreadable;

	constructor(format: Pick<EventFormat, "open">, onUnreadable: OnUnreadable) {
		this.#format = format;
		this.#onUnreadable = onUnreadable;
	}

	/** Returns the event as JSON text. */
	toText(stored: StoredEvent, secrets: SecretsForm): EventText {
		const { sequence, receivedAt, happenedAt, sender, origin } = stored;
		const text = tryRead(stored, this.#onUnreadable, () => this.#open(stored, secrets));
		return { sequence, receivedAt, happenedAt, sender, origin, text };
	}

	/** Returns the event as a message. */
	toEntry(stored: StoredEvent, secrets: SecretsForm): ConversationEventEntry {
		const { sequence, conversationId, receivedAt, happenedAt, sender, origin } = stored;
		const event = tryRead(stored, this.#onUnreadable, () => toMessage(this.#open(stored, secrets)));
		return create(ConversationEventEntrySchema, {
			sequence,
			conversationId,
			receivedAt: fromMicroseconds(receivedAt),
			happenedAt: fromMicroseconds(happenedAt),
			sender: sender ?? "",
			origin,
			event,
			unreadable: event === undefined,
		});
	}

	/** @throws ServiceError `data_loss` when the stored event cannot be read or decrypted */
	#open({ conversationId, event }: StoredEvent, secrets: SecretsForm): string {
		if (!("unreadable" in event)) return this.#format.open(conversationId, event, secrets);
		throw new ServiceError("data_loss", "The stored event cannot be read", {
			conversationId,
			cause: new Error(event.unreadable),
		});
	}
}

/**
 * Returns the JSON text of an event in a list: the event as it was sent, its sequence number and its times. An event that
 * was fetched from the agent server is marked as such.
 *
 * @param conversationId set when the text must name the conversation
 */
export function eventJson(
	{ sequence, receivedAt, happenedAt, sender = "", origin, text }: EventText,
	conversationId?: string,
): string {
	const [received, happened] = [receivedAt, happenedAt].map((time) => formatDateTime(fromMicroseconds(time)));
	const conversation = conversationId === undefined ? "" : `"conversation_id":"${conversationId}",`;
	const event = text === undefined ? '"unreadable":true' : `"event":${text}`;
	const mark = origin === UpdateOrigin.RECONCILED ? `"origin":"reconciled",` : "";
	return `{"sequence":${sequence},${conversation}"received_at":"${received}","happened_at":"${happened}","sender":${JSON.stringify(sender)},${mark}${event}}`;
}
