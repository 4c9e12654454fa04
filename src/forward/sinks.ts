import { readFile } from "node:fs/promises";
import { isIP } from "node:net";
import type { JetStreamClient } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/transport-node";
import type { Producer } from "@platformatic/kafka";
import {
	type BrokerTls,
	isAllowed,
	type KafkaSettings,
	type NatsSettings,
	type Place,
	SUBJECT,
	TOPIC,
} from "./broker-settings.ts";
import { type Answer, failure, type HttpSink, type SentMessage, TIMEOUT } from "./http-sink.ts";

/** A kind of server that only the configuration names. */
export interface Broker extends AsyncDisposable {
	readonly places: readonly Place[];
	/** Publishes to a subject or topic. Resolves to what the broker answered. */
	publish(place: string, message: SentMessage, headers: Readonly<Record<string, string>>): Promise<string>;
}

/** The variables that name the servers and list the places of each kind of broker, by the protocol of its addresses. */
const BROKERS: Readonly<Record<string, Readonly<Record<"variable" | "list" | "place", string>> & { form: RegExp }>> = {
	"nats:": { variable: "FORWARD_NATS", list: "FORWARD_NATS_SUBJECTS", place: "subject", form: SUBJECT },
	"kafka:": { variable: "FORWARD_KAFKA", list: "FORWARD_KAFKA_TOPICS", place: "topic", form: TOPIC },
};

interface Destination {
	readonly url: string;
	/** Owner of the endpoint; empty for none. */
	readonly owner: string;
}

/** Sends messages by the sink of their address: HTTP, or a broker, such as `nats:subject`. */
export class Sinks implements AsyncDisposable {
	readonly #http: HttpSink;
	readonly #brokers: Readonly<Record<string, Broker>>;

	/** @param brokers by the protocols of the addresses */
	constructor(http: HttpSink, brokers: Readonly<Record<string, Broker>>) {
		this.#http = http;
		this.#brokers = brokers;
	}

	/**
	 * Returns why an address cannot be that of an endpoint; undefined if it can.
	 *
	 * @param text the address as it was written, which is a URL
	 */
	refusalOf(text: string): string | undefined {
		const { protocol, href } = new URL(text);
		const broker = BROKERS[protocol];
		if (broker === undefined) {
			if (!/^https?:$/.test(protocol)) return "must be an http, https, nats or kafka URL";
			return this.#http.refusalOf(text);
		}
		if (this.#brokers[protocol] === undefined) return `needs ${broker.variable}, which names the servers`;
		const isPlace = broker.form.test(href.slice(protocol.length));
		return isPlace ? undefined : `must be ${protocol} and the name of a ${broker.place}`;
	}

	/** Returns why endpoints of an owner may not have an address that can be that of an endpoint; undefined if they may. */
	denialOf({ url, owner }: Destination): string | undefined {
		const { protocol, pathname } = new URL(url);
		const [known, broker] = [BROKERS[protocol], this.#brokers[protocol]];
		if (known === undefined || broker === undefined || isAllowed(broker.places, pathname, owner)) return undefined;
		return `${known.list} has no entry for the ${known.place} ${pathname}${owner === "" ? "" : ` and the owner ${owner}`}`;
	}

	/** Sends a message, or gives up when the signal fires. Never rejects. */
	async send(
		to: Destination,
		message: SentMessage,
		headers: Readonly<Record<string, string>>,
		signal: AbortSignal,
	): Promise<Answer> {
		const { protocol, pathname } = new URL(to.url);
		const known = BROKERS[protocol];
		if (known === undefined) return await this.#http.send(to.url, message, headers, signal);
		const broker = this.#brokers[protocol];
		if (broker === undefined) return failure(`${known.variable} is not set`);
		const denial = this.denialOf(to);
		return denial === undefined ? await answerOf(broker.publish(pathname, message, headers), signal) : failure(denial);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.#http[Symbol.dispose]();
		for (const broker of Object.values(this.#brokers)) await broker[Symbol.asyncDispose]();
	}
}

/** Returns the answer of a broker, or gives up when the signal fires. Never rejects. */
async function answerOf(work: Promise<string>, signal: AbortSignal): Promise<Answer> {
	const over = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT)]);
	const ended = new Promise<never>((_, reject) => {
		over.addEventListener("abort", () => reject(new Error("no answer in time")), { once: true });
	});
	try {
		return { status: 0, error: "", answer: await Promise.race([work, ended]), retryAfter: undefined };
	} catch (error) {
		return failure(reasonOf(error));
	}
}

/** Returns the message of an error, with that of the error that caused it: of several the last one. */
function reasonOf(error: unknown): string {
	if (!(error instanceof Error) || error.message === "") return String(error);
	const { errors = [] }: { readonly errors?: unknown } = error instanceof AggregateError ? error : {};
	const cause = Array.isArray(errors) && errors.length > 0 ? errors.at(-1) : error.cause;
	return cause === undefined ? error.message : `${error.message} ${reasonOf(cause)}`;
}

async function authoritiesOf({ caFile }: BrokerTls, variable: string): Promise<{ readonly ca?: string }> {
	return caFile === undefined ? {} : { ca: (await namedFile(variable, caFile)).toString() };
}

/** @throws Error that names the variable */
async function namedFile(variable: string, path: string): Promise<Buffer> {
	try {
		return await readFile(path);
	} catch (error) {
		const reason = error instanceof Error && "code" in error ? error.code : error;
		throw new Error(`${variable} names a file that cannot be read: ${reason}`);
	}
}

/** Acknowledgement by all replicas that are in sync. */
const ALL = -1;

/**
 * Sends messages to topics of Kafka, `kafka:topic`. Those of a conversation go to one partition. A repetition has the same
 * header `webhook-id`. Its package is loaded with the first message.
 */
export function kafkaBroker({ servers, places, tls, sasl }: KafkaSettings): Broker {
	let producer: Promise<Producer<string, string, string, string>> | undefined;

	async function open() {
		const { Producer, stringSerializers } = await import("@platformatic/kafka");
		const bootstrapBrokers = [...servers];
		const clientId = "conversation-update-webhook-service";
		// A name of a server in the handshake lets those behind one address tell which is meant; an IP address is no name.
		const tlsServerName = !servers.some((server) => isIP(server.replace(/:\d+$|[[\]]/g, "")) !== 0);
		const secure = {
			...(tls && { tls: await authoritiesOf(tls, "FORWARD_KAFKA_CA_FILE"), tlsServerName }),
			...(sasl && {
				sasl: { mechanism: sasl.mechanism, username: sasl.user, password: sasl.password.export().toString() },
			}),
		};
		// A failed delivery is tried again by the one who sends it.
		const settings = { clientId, bootstrapBrokers, serializers: stringSerializers, timeout: TIMEOUT, retries: 1 };
		return new Producer({ ...settings, ...secure });
	}

	return {
		places,
		async publish(topic, { body, conversationId: key, contentType }, headers) {
			producer ??= open().catch((error: unknown) => {
				producer = undefined;
				throw error;
			});
			const value = typeof body === "string" ? body : Buffer.from(body).toString();
			const sent = { topic, value, ...(key ? { key } : {}), headers: { ...headers, "content-type": contentType } };
			const { offsets = [] } = await (await producer).send({ messages: [sent], acks: ALL });
			return offsets.map(({ partition, offset }) => `partition ${partition}, offset ${offset}`).join();
		},
		async [Symbol.asyncDispose]() {
			await (await producer?.catch(() => undefined))?.close();
		},
	};
}

/**
 * Publishes messages to subjects of NATS JetStream, `nats:subject`. A repetition has the same id, by which the stream
 * leaves it out. Its packages are loaded with the first message.
 */
export function natsBroker({ servers, places, tls, login }: NatsSettings): Broker {
	let opened: Promise<{ readonly connection: NatsConnection; readonly client: JetStreamClient }> | undefined;

	async function open() {
		const [{ connect, credsAuthenticator }, { jetstream }] = await Promise.all([
			import("@nats-io/transport-node"),
			import("@nats-io/jetstream"),
		]);
		const connection = await connect({
			...{ servers: [...servers], maxReconnectAttempts: -1 },
			...(tls && { tls: await authoritiesOf(tls, "FORWARD_NATS_CA_FILE") }),
			...(login && "user" in login && { user: login.user, pass: login.password.export().toString() }),
			...(login && "token" in login && { token: login.token.export().toString() }),
			...(login &&
				"credentialsFile" in login && {
					authenticator: credsAuthenticator(await namedFile("FORWARD_NATS_CREDENTIALS_FILE", login.credentialsFile)),
				}),
		});
		void connection.closed().then(() => {
			opened = undefined;
		});
		return { connection, client: jetstream(connection) };
	}

	return {
		places,
		async publish(subject, { body, contentType }, headers) {
			opened ??= open().catch((error: unknown) => {
				opened = undefined;
				throw error;
			});
			const [{ client }, { headers: newHeaders }] = await Promise.all([opened, import("@nats-io/transport-node")]);
			const sent = newHeaders();
			for (const [name, value] of Object.entries({ ...headers, "Content-Type": contentType })) sent.set(name, value);
			const id = headers["webhook-id"] ?? "";
			const ack = await client.publish(subject, body, { msgID: id, headers: sent, timeout: TIMEOUT });
			return `stream ${ack.stream}, sequence ${ack.seq}${ack.duplicate ? ", a repetition" : ""}`;
		},
		async [Symbol.asyncDispose]() {
			await (await opened?.catch(() => undefined))?.connection.close();
		},
	};
}
