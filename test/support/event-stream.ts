import type { Endpoints } from "./clients.ts";

/** An event that a stream has dispatched. */
export interface StreamEvent {
	readonly id: string;
	/** `message` unless the stream says otherwise. */
	readonly type: string;
	readonly data: string;
}

/** Interprets an event stream as browsers do (HTML Standard, section 9.2.6). */
export class EventStreamParser {
	/** What a client that connects again sends as `Last-Event-ID`. */
	lastEventId = "";
	/** Milliseconds to wait before connecting again, if the stream has said so. */
	retry: number | undefined;
	/** Comments in the order of their arrival. */
	readonly comments: string[] = [];
	#rest = "";
	#id = "";
	#type = "";
	#data = "";

	/** Returns the events that the text completes. */
	add(text: string): StreamEvent[] {
		const lines = (this.#rest + text).split(/\r\n|\n|\r/);
		this.#rest = lines.pop() ?? "";
		return lines.flatMap((line) => this.#line(line) ?? []);
	}

	#line(line: string): StreamEvent | undefined {
		if (line === "") return this.#dispatch();
		const colon = line.indexOf(":");
		const [name, value] = colon === -1 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
		if (name === "") this.comments.push(value);
		if (name === "event") this.#type = value;
		if (name === "data") this.#data += `${value}\n`;
		if (name === "id" && !value.includes("\0")) this.#id = value;
		if (name === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
		return undefined;
	}

	#dispatch(): StreamEvent | undefined {
		this.lastEventId = this.#id;
		const [type, data] = [this.#type || "message", this.#data];
		this.#type = "";
		this.#data = "";
		return data === "" ? undefined : { id: this.#id, type, data: data.slice(0, -1) };
	}
}

/** A client of server-sent events with a connection of its own. */
export class EventStream implements Disposable {
	readonly response: Response;
	readonly parser = new EventStreamParser();
	readonly #abort: AbortController;
	readonly #chunks: AsyncIterator<Uint8Array>;
	readonly #decoder = new TextDecoder();
	#events: StreamEvent[] = [];

	private constructor(response: Response, abort: AbortController) {
		if (response.body === null) throw new TypeError("the response has no body");
		this.response = response;
		this.#abort = abort;
		this.#chunks = response.body[Symbol.asyncIterator]();
	}

	/** Opens a stream at a path, with its query. */
	static async open(
		{ http }: Pick<Endpoints, "http">,
		key: string,
		path: string,
		headers: Readonly<Record<string, string>> = {},
	): Promise<EventStream> {
		const abort = new AbortController();
		const init = { headers: { "X-Access-Token": key, ...headers }, signal: abort.signal };
		return new EventStream(await fetch(`${http}${path}`, init), abort);
	}

	/** Events that have arrived and are not taken yet. */
	get pending(): readonly StreamEvent[] {
		return this.#events;
	}

	/** Returns the next event; undefined when the stream has ended. */
	async next(): Promise<StreamEvent | undefined> {
		for (;;) {
			const event = this.#events.shift();
			if (event !== undefined) return event;
			if (!(await this.#read())) return undefined;
		}
	}

	/** Returns the next `count` events. */
	async take(count: number): Promise<StreamEvent[]> {
		const events: StreamEvent[] = [];
		while (events.length < count) {
			const event = await this.next();
			if (event === undefined) throw new Error(`the stream has ended after ${events.length} events`);
			events.push(event);
		}
		return events;
	}

	/** Reads until the stream has sent a comment, and returns the id that a client would resume after. */
	async heartbeat(): Promise<string> {
		const before = this.parser.comments.length;
		while (this.parser.comments.length === before) if (!(await this.#read())) throw new Error("the stream has ended");
		return this.parser.lastEventId;
	}

	/** Returns the text of a response that is no stream. */
	async text(): Promise<string> {
		let text = "";
		for (;;) {
			const { done, value } = await this.#chunks.next();
			if (done === true) return text;
			text += this.#decoder.decode(value, { stream: true });
		}
	}

	async #read(): Promise<boolean> {
		const { done, value } = await this.#chunks.next();
		if (done === true) return false;
		this.#events.push(...this.parser.add(this.#decoder.decode(value, { stream: true })));
		return true;
	}

	[Symbol.dispose](): void {
		this.#abort.abort();
	}
}
