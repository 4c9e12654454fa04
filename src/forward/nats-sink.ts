import type { JetStreamClient } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/transport-node";
import { type Answer, type SentMessage, TIMEOUT } from "./http-sink.ts";
import { answerOf, type Broker } from "./sinks.ts";

/**
 * Publishes messages to subjects of NATS JetStream, `nats:subject`. A repetition has the same id, by which the stream
 * leaves it out. Its packages are loaded with the first message.
 */
export class NatsSink implements Broker {
	readonly #servers: readonly string[];
	#opened: Promise<{ readonly connection: NatsConnection; readonly client: JetStreamClient }> | undefined;

	/** @param servers `host:port` */
	constructor(servers: readonly string[]) {
		this.#servers = servers;
	}

	async send(
		url: string,
		message: SentMessage,
		headers: Readonly<Record<string, string>>,
		signal: AbortSignal,
	): Promise<Answer> {
		return await answerOf(this.#publish(new URL(url).pathname, message, headers), signal);
	}

	async #publish(subject: string, message: SentMessage, headers: Readonly<Record<string, string>>): Promise<string> {
		const [{ client }, { headers: newHeaders }] = await Promise.all([this.#open(), import("@nats-io/transport-node")]);
		const sent = newHeaders();
		for (const [name, value] of Object.entries({ ...headers, "Content-Type": message.contentType }))
			sent.set(name, value);
		const id = headers["webhook-id"] ?? "";
		const ack = await client.publish(subject, message.body, { msgID: id, headers: sent, timeout: TIMEOUT });
		return `stream ${ack.stream}, sequence ${ack.seq}${ack.duplicate ? ", a repetition" : ""}`;
	}

	#open() {
		this.#opened ??= this.#connect().catch((error: unknown) => {
			this.#opened = undefined;
			throw error;
		});
		return this.#opened;
	}

	async #connect() {
		const [{ connect }, { jetstream }] = await Promise.all([
			import("@nats-io/transport-node"),
			import("@nats-io/jetstream"),
		]);
		const connection = await connect({ servers: [...this.#servers], maxReconnectAttempts: -1 });
		void connection.closed().then(() => {
			this.#opened = undefined;
		});
		return { connection, client: jetstream(connection) };
	}

	async [Symbol.asyncDispose](): Promise<void> {
		const opened = await this.#opened?.catch(() => undefined);
		await opened?.connection.close();
	}
}
