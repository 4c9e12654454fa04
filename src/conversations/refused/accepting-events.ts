import type { CallSignal } from "../../call-signal.ts";
import { parseUuid } from "../../record/json/scalars.ts";
import type { Poster } from "../../store/owners.ts";
import type { PostForm } from "../../store/refused-posts.ts";
import { conversationIdIn, type EventIngest, type IngestedEvents } from "../ingest/event-ingest.ts";
import { kindOf } from "./reasons.ts";
import type { Refusal, RefusedPosts } from "./refused-posts.ts";

/** Forms of batches of events. */
type BatchForm = Extract<PostForm, "events_json" | "events_message">;

/** A refused batch that is answered with success. */
export type AcceptedBatch = Refusal & { readonly poster: Poster; readonly conversationId: string };

/** Settings of {@link AcceptingEvents}. */
export interface AcceptingOptions {
	/** Paths of the routes and RPCs by which batches arrive. */
	readonly routes: Readonly<Record<BatchForm, string>>;
	/** Called with each batch that was accepted. */
	readonly onAccepted: (batch: AcceptedBatch) => void;
	/** Called when a batch could not be stored. Its sender gets the refusal. */
	readonly onError: (error: unknown) => void;
}

/**
 * Takes batches of events, and accepts those that are refused for their contents: their bodies are kept until they can be
 * taken in. So the sender goes on with the next batch, which would have to wait for this one for ever.
 */
export class AcceptingEvents implements Pick<EventIngest, "json" | "request"> {
	readonly #ingest: Pick<EventIngest, "json" | "request">;
	readonly #kept: Pick<RefusedPosts, "accept">;
	readonly #options: AcceptingOptions;

	constructor(
		ingest: Pick<EventIngest, "json" | "request">,
		kept: Pick<RefusedPosts, "accept">,
		options: AcceptingOptions,
	) {
		this.#ingest = ingest;
		this.#kept = kept;
		this.#options = options;
	}

	/**
	 * As `EventIngest.json`. Resolves also when the batch is refused, its body is on disk, and the conversation has a gap.
	 *
	 * @throws ServiceError as `EventIngest.json` does, also when there is no room for the body
	 */
	async json(conversationId: string, body: Buffer, poster: Poster, signal: CallSignal): Promise<IngestedEvents> {
		try {
			return await this.#ingest.json(conversationId, body, poster, signal);
		} catch (error) {
			return await this.#accept("events_json", conversationId, body, poster, error);
		}
	}

	/** As `EventIngest.request`, in the way of {@link json}. */
	async request(request: Uint8Array, poster: Poster, signal: CallSignal): Promise<IngestedEvents> {
		try {
			return await this.#ingest.request(request, poster, signal);
		} catch (error) {
			return await this.#accept("events_message", conversationIdIn(request), request, poster, error);
		}
	}

	async #accept(
		form: BatchForm,
		namedConversation: string,
		body: Uint8Array,
		poster: Poster,
		error: unknown,
	): Promise<IngestedEvents> {
		const kind = kindOf(error);
		const conversationId = parseUuid(namedConversation);
		// Every other kind says that the sender may not post this, or that the post would succeed later.
		if ((kind !== "invalid_record" && kind !== "internal") || conversationId === undefined) throw error;
		const route = this.#options.routes[form];
		const batch = { poster, peer: undefined, route, form, error, conversationId, size: body.byteLength, body };
		const isKept = await this.#kept.accept(batch).catch((failure: unknown) => {
			this.#options.onError(failure);
			return false;
		});
		if (!isKept) throw error;
		this.#options.onAccepted(batch);
		return { stored: 0, updateSequence: undefined };
	}
}
