import type { Producer } from "@platformatic/kafka";
import { type Answer, type SentMessage, TIMEOUT } from "./http-sink.ts";
import { answerOf, type Broker } from "./sinks.ts";

/** Acknowledgement by all replicas that are in sync. */
const ALL = -1;

/**
 * Sends messages to topics of Kafka, `kafka:topic`. Those of a conversation go to one partition. A repetition has the same
 * header `webhook-id`. Its package is loaded with the first message.
 */
export class KafkaSink implements Broker {
	readonly #servers: readonly string[];
	#producer: Promise<Producer<string, string, string, string>> | undefined;

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
		return await answerOf(this.#produce(new URL(url).pathname, message, headers), signal);
	}

	async #produce(topic: string, message: SentMessage, headers: Readonly<Record<string, string>>): Promise<string> {
		this.#producer ??= this.#open().catch((error: unknown) => {
			this.#producer = undefined;
			throw error;
		});
		const producer = await this.#producer;
		const { body, conversationId: key, contentType } = message;
		const value = typeof body === "string" ? body : Buffer.from(body).toString();
		const sent = { topic, value, ...(key ? { key } : {}), headers: { ...headers, "content-type": contentType } };
		const { offsets = [] } = await producer.send({ messages: [sent], acks: ALL });
		return offsets.map(({ partition, offset }) => `partition ${partition}, offset ${offset}`).join();
	}

	async #open() {
		const { Producer, stringSerializers } = await import("@platformatic/kafka");
		const bootstrapBrokers = [...this.#servers];
		const clientId = "conversation-update-webhook-service";
		// A failed delivery is tried again by the one who sends it.
		return new Producer({ clientId, bootstrapBrokers, serializers: stringSerializers, timeout: TIMEOUT, retries: 1 });
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await (await this.#producer?.catch(() => undefined))?.close();
	}
}
