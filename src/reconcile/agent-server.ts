import { setTimeout as delay } from "node:timers/promises";
import { ServiceError } from "../errors.ts";
import { retryAfterOf } from "../forward/http-sink.ts";
import { parseExactJson } from "../record/json/exact-json.ts";
import { type ExactJson, type ExactJsonObject, isJsonObject, memberOf } from "../record/json/json-value.ts";
import { parseUuid } from "../record/json/scalars.ts";

/**
 * Client of the API of an agent server: the searches for its conversations and their events, its records, and the pause of a
 * conversation. One request at a time.
 */

export interface AgentServerAddress {
	/** URL without user name, query and fragment. Its path is the prefix of the API, such as `/agent`; usually `/`. */
	readonly url: URL;
	/** Session API key; undefined for an agent server without keys. It is sent to the origin of the URL alone. */
	readonly key: string | undefined;
}

export interface ClientOptions {
	readonly maxBytes: number;
	/** Maximum number of entries of a page, up to 100, which is the default. */
	readonly pageSize?: number;
	/** Maximum number of pages of a list. Default: 100000. */
	readonly maxPages?: number;
	/** Milliseconds after which an attempt without a whole answer ends. Default: 60000. */
	readonly timeout?: number;
	/** Milliseconds to wait before the second attempt; each further wait is twice as long. Default: 500. */
	readonly retryDelay?: number;
	/** Minimum milliseconds between the starts of two requests. Default: 20. */
	readonly interval?: number;
	/** Ends the list of conversations. */
	readonly signal: AbortSignal;
}

export interface ListedConversation {
	/** Lower-case UUID with dashes. */
	readonly id: string;
	readonly updatedAt: string | undefined;
	readonly status: string | undefined;
}

export interface Page<Item> {
	readonly items: readonly Item[];
	readonly nextPageId: string | undefined;
}

/** The agent server cannot be read. The message says why, and quotes nothing that it sent. */
export class AgentServerError extends Error {
	override readonly name = "AgentServerError";
	/** Whether all requests would fail alike, so that a run ends. */
	readonly isFatal: boolean;
	/** Set if another attempt can succeed: after the milliseconds for which the agent server asks, if it does. */
	readonly retry: { readonly after?: number | undefined } | undefined;

	constructor(
		message: string,
		isFatal: boolean,
		options: ErrorOptions & Pick<Partial<AgentServerError>, "retry"> = {},
	) {
		super(message, options);
		this.isFatal = isFatal;
		this.retry = options.retry;
	}
}

class TooLarge extends Error {}

const MAX_ATTEMPTS = 5;
/** Maximum milliseconds that an answer can make the client wait with `Retry-After`. */
const MAX_WAIT = 60_000;
/** A page that is too large is read again with this fraction of its entries. */
const SMALLER_PAGE = 1 / 5;
const MAX_PAGE_ID = 512;

export class AgentServerClient {
	readonly #address: AgentServerAddress;
	readonly #options: Required<ClientOptions>;
	#nextStart = 0;

	constructor(address: AgentServerAddress, options: ClientOptions) {
		this.#address = address;
		this.#options = { pageSize: 100, maxPages: 100_000, timeout: 60_000, retryDelay: 500, interval: 20, ...options };
	}

	/**
	 * Yields the conversations, oldest first, in pages. A conversation can come twice when others are deleted meanwhile.
	 *
	 * @throws AgentServerError when the list cannot be read to its end
	 */
	async *conversations(): AsyncGenerator<Page<ListedConversation>, void, undefined> {
		let isKnown = false;
		for await (const page of this.#pages("conversations", { sort_order: "CREATED_AT" }, this.#options.signal)) {
			isKnown = true;
			yield { ...page, items: page.items.map(listedFrom) };
		}
		if (!isKnown)
			throw new AgentServerError("The agent server has no list of conversations. Is this its address?", true);
	}

	/**
	 * Yields the events of a conversation in pages; none when the conversation is not known.
	 *
	 * @throws AgentServerError when they cannot be read
	 */
	events(
		conversationId: string,
		order: "TIMESTAMP" | "TIMESTAMP_DESC",
		signal: AbortSignal,
	): AsyncGenerator<Page<ExactJsonObject>, void, undefined> {
		return this.#pages(`conversations/${conversationId}/events`, { sort_order: order }, signal);
	}

	/** Returns the JSON text of a record with its skills; undefined when the conversation is not known. */
	async record(conversationId: string, signal: AbortSignal): Promise<Buffer | undefined> {
		try {
			return await this.#get(`conversations/${conversationId}`, { include_skills: "true" }, signal);
		} catch (error) {
			if (error instanceof TooLarge) throw new AgentServerError("A record is larger than MAX_BODY_BYTES", false);
			throw error;
		}
	}

	/**
	 * Pauses a conversation, by one attempt.
	 *
	 * @returns false when the conversation is not known
	 * @throws AgentServerError when it was not paused
	 */
	async pause(conversationId: string, signal: AbortSignal): Promise<boolean> {
		try {
			return (await this.#attempt(`conversations/${conversationId}/pause`, {}, signal, "POST")) !== undefined;
		} catch (error) {
			// Only the status matters.
			if (error instanceof TooLarge) return true;
			throw error;
		}
	}

	/**
	 * Yields a list in pages, also the first one when it is empty. Whatever the server answers, the list has an end: an empty
	 * page is the last one, no page comes twice, and there are at most `maxPages`.
	 */
	async *#pages(
		list: string,
		query: Readonly<Record<string, string>>,
		signal: AbortSignal,
	): AsyncGenerator<Page<ExactJsonObject>, void, undefined> {
		const seen = new Set<string>();
		const { pageSize, maxPages } = this.#options;
		let limit = pageSize;
		for (let pageId: string | undefined; ; ) {
			const paged = { ...query, limit: String(limit), ...(pageId === undefined ? {} : { page_id: pageId }) };
			let page: Page<ExactJsonObject>;
			try {
				const body = await this.#get(`${list}/search`, paged, signal);
				// The conversation is not known.
				if (body === undefined) return;
				page = pageOf(body);
			} catch (error) {
				if (!(error instanceof TooLarge)) throw error;
				if (limit === 1) throw new AgentServerError("A single entry of a list is larger than MAX_BODY_BYTES", false);
				limit = Math.max(1, Math.floor(limit * SMALLER_PAGE));
				continue;
			}
			yield page;
			if (page.nextPageId === undefined) return;
			if (seen.has(page.nextPageId)) throw new AgentServerError("The agent server repeats the pages of a list", false);
			if (seen.size === maxPages) throw new AgentServerError("The agent server lists pages without end", false);
			seen.add(page.nextPageId);
			pageId = page.nextPageId;
		}
	}

	/**
	 * Sends a request, again after a failure that may pass.
	 *
	 * @returns the body; undefined for 404
	 * @throws TooLarge when the body is larger than allowed
	 */
	async #get(path: string, query: Readonly<Record<string, string>>, signal: AbortSignal): Promise<Buffer | undefined> {
		const { retryDelay } = this.#options;
		for (let attempt = 1; ; attempt++) {
			try {
				return await this.#attempt(path, query, signal);
			} catch (error) {
				const retry = error instanceof AgentServerError ? error.retry : undefined;
				if (retry === undefined || attempt === MAX_ATTEMPTS) throw error;
				await delay(Math.min(MAX_WAIT, retry.after ?? retryDelay * 2 ** (attempt - 1)), undefined, { signal });
			}
		}
	}

	/** Sends a request once. Returns and throws as {@link #get}. */
	async #attempt(
		path: string,
		query: Readonly<Record<string, string>>,
		signal: AbortSignal,
		method: "GET" | "POST" = "GET",
	): Promise<Buffer | undefined> {
		const { timeout, interval } = this.#options;
		const { url: base, key } = this.#address;
		const now = performance.now();
		const start = Math.max(now, this.#nextStart);
		this.#nextStart = start + interval;
		if (start > now) await delay(start - now, undefined, { signal });
		const url = new URL(`${base.pathname.replace(/\/+$/, "")}/api/${path}`, base.origin);
		for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
		const ended = new AbortController();
		const timer = setTimeout(() => ended.abort(), timeout);
		try {
			const response = await fetch(url, {
				method,
				headers: { Accept: "application/json", ...(key === undefined ? {} : { "X-Session-API-Key": key }) },
				// The key must not reach another origin.
				redirect: "error",
				signal: AbortSignal.any([signal, ended.signal]),
			});
			if (response.status === 200) return await this.#body(response);
			await response.body?.cancel();
			if (response.status === 404) return undefined;
			throw failureOf(response);
		} catch (cause) {
			signal.throwIfAborted();
			if (cause instanceof TooLarge || cause instanceof AgentServerError) throw cause;
			const reason = ended.signal.aborted
				? "The agent server does not answer in time"
				: "The agent server cannot be reached, or its answer was cut";
			// The inner cause says why. It has no part of the answer.
			const inner = cause instanceof Error ? cause.cause : undefined;
			throw new AgentServerError(reason, true, { cause: inner ?? cause, retry: {} });
		} finally {
			clearTimeout(timer);
		}
	}

	async #body(response: Response): Promise<Buffer> {
		const chunks: Uint8Array[] = [];
		let size = 0;
		for await (const chunk of response.body ?? []) {
			size += chunk.byteLength;
			// Leaving the loop cancels the body.
			if (size > this.#options.maxBytes) throw new TooLarge();
			chunks.push(chunk);
		}
		return Buffer.concat(chunks);
	}
}

function failureOf({ status, headers }: Response): AgentServerError {
	if (status === 401 || status === 403)
		return new AgentServerError(`The agent server refuses the key (${status})`, true);
	const reason = `The agent server answers with status ${status}`;
	if (status === 429 || status === 503)
		return new AgentServerError(reason, true, { retry: { after: retryAfterOf(headers.get("Retry-After")) } });
	return new AgentServerError(reason, false, status >= 500 ? { retry: {} } : {});
}

/** @throws TooLarge when the page has too many values */
function pageOf(body: Buffer): Page<ExactJsonObject> {
	const json = jsonOf(body);
	const items = memberOf(json, "items");
	if (!Array.isArray(items) || !items.every(isJsonObject))
		throw new AgentServerError("Its answer is not a list. Is the address that of an agent server?", true);
	const nextPageId = textOf(memberOf(json, "next_page_id"));
	if (nextPageId !== undefined && nextPageId.length > MAX_PAGE_ID)
		throw new AgentServerError("Its id of the next page is too long", true);
	const isLast = nextPageId === "" || items.length === 0;
	return { items, nextPageId: isLast ? undefined : nextPageId };
}

function listedFrom(item: ExactJsonObject): ListedConversation {
	const id = parseUuid(textOf(memberOf(item, "id")) ?? "");
	if (id === undefined)
		throw new AgentServerError("The agent server lists a conversation whose id is not a UUID", true);
	return { id, updatedAt: textOf(memberOf(item, "updated_at")), status: textOf(memberOf(item, "execution_status")) };
}

function jsonOf(body: Buffer): ExactJson {
	try {
		return parseExactJson(body).json;
	} catch (error) {
		if (!(error instanceof ServiceError)) throw error;
		// A list can have more values than one record may have.
		if (error.violations.some(({ type }) => type === "value_error")) throw new TooLarge();
		throw new AgentServerError("Its answer is not JSON. Is the address that of an agent server?", true);
	}
}

function textOf(json: ExactJson | undefined): string | undefined {
	return typeof json === "string" ? json : undefined;
}
