import { type Answer, type HttpSink, type SentMessage, type Sink, TIMEOUT } from "./http-sink.ts";

/** A sink of a kind of server that only the configuration names. */
export interface Broker extends Sink, AsyncDisposable {}

/** What is known of the kinds of brokers, by the protocols of the addresses. */
const BROKERS: Readonly<Record<string, { readonly variable: string; readonly place: string; readonly form: RegExp }>> =
	{
		// Subjects that begin with a dollar are those of the server itself.
		"nats:": { variable: "FORWARD_NATS", place: "subject", form: /^[\w-]+(?:\.[\w-]+)*$/ },
		// Topics that begin with two underlines are those of the server itself.
		"kafka:": { variable: "FORWARD_KAFKA", place: "topic", form: /^(?!__)(?=.*[\w-])[\w.-]{1,249}$/ },
	};

/** Sends messages by the sink of their address: HTTP, or a broker, such as `nats:subject`. */
export class Sinks implements Sink, AsyncDisposable {
	readonly #http: HttpSink;
	readonly #brokers: Readonly<Record<string, Broker>>;

	/** @param brokers by the protocols of the addresses */
	constructor(http: HttpSink, brokers: Readonly<Record<string, Broker>>) {
		this.#http = http;
		this.#brokers = brokers;
	}

	/** Returns why an address cannot be that of an endpoint; undefined if it can. */
	refusalOf(url: URL): string | undefined {
		const broker = BROKERS[url.protocol];
		if (broker === undefined) {
			if (!/^https?:$/.test(url.protocol)) return "must be an http, https, nats or kafka URL";
			const isPlain = url.username + url.password + url.hash === "";
			return isPlain ? undefined : "must have no user name, no password and no fragment";
		}
		if (this.#brokers[url.protocol] === undefined) return `needs ${broker.variable}, which names the servers`;
		const isPlace = broker.form.test(url.href.slice(url.protocol.length));
		return isPlace ? undefined : `must be ${url.protocol} and the name of a ${broker.place}`;
	}

	async send(
		url: string,
		message: SentMessage,
		headers: Readonly<Record<string, string>>,
		signal: AbortSignal,
	): Promise<Answer> {
		const { protocol } = new URL(url);
		const { variable } = BROKERS[protocol] ?? {};
		if (variable === undefined) return await this.#http.send(url, message, headers, signal);
		const broker = this.#brokers[protocol];
		if (broker !== undefined) return await broker.send(url, message, headers, signal);
		return { status: 0, error: `${variable} is not set`, answer: "", retryAfter: undefined };
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.#http[Symbol.dispose]();
		for (const broker of Object.values(this.#brokers)) await broker[Symbol.asyncDispose]();
	}
}

/**
 * Returns the answer of a broker. Never rejects.
 *
 * @param work resolves to what the broker answered
 * @param signal gives up
 */
export async function answerOf(work: Promise<string>, signal: AbortSignal): Promise<Answer> {
	const over = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT)]);
	const ended = new Promise<never>((_, reject) => {
		over.addEventListener("abort", () => reject(new Error("no answer in time")), { once: true });
	});
	try {
		return { status: 0, error: "", answer: await Promise.race([work, ended]), retryAfter: undefined };
	} catch (error) {
		const reason = error instanceof Error && error.message !== "" ? error.message : String(error);
		return { status: 0, error: reason, answer: "", retryAfter: undefined };
	}
}
