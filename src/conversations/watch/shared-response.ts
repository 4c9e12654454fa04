import { type DescMessage, fromBinary, type MessageShape, toBinary, toJsonString } from "@bufbuild/protobuf";

/** A message for many watchers. It is encoded once for all of them, when its encoded form is first needed. */
export class SharedResponse<Response extends DescMessage> {
	readonly #schema: Response;
	/** Undefined when the message is encoded, because a decoded record takes several times the memory. */
	#message: MessageShape<Response> | undefined;
	#bytes: Uint8Array | undefined;
	#json: Uint8Array | undefined;
	/** Sequence through which a watcher has received everything once it has the message. */
	readonly sequence: bigint;
	/**
	 * The entry of the message as an event of a `text/event-stream` (HTML Standard, section 9.2.5), in UTF-8. Undefined for
	 * a heartbeat, and unless the watcher asked for JSON texts.
	 */
	readonly event: Uint8Array | undefined;

	/**
	 * @param message must not be changed afterwards
	 * @param entryJson the entry of the message as JSON text
	 */
	constructor(schema: Response, message: MessageShape<Response>, sequence: bigint, entryJson?: string) {
		this.#schema = schema;
		this.#message = message;
		this.sequence = sequence;
		// A line break would end the data. In JSON it stands only between tokens, where a space is the same.
		const data = entryJson?.replaceAll(/[\r\n]+/g, " ");
		this.event = data === undefined ? undefined : Buffer.from(`id: ${sequence}\ndata: ${data}\n\n`);
	}

	/** The message. It is decoded each time after the encoded form was needed. */
	get message(): MessageShape<Response> {
		return this.#message ?? fromBinary(this.#schema, this.bytes);
	}

	/** The encoded message. */
	get bytes(): Uint8Array {
		this.#bytes ??= toBinary(this.#schema, this.message);
		this.#message = undefined;
		return this.#bytes;
	}

	/** The message as ProtoJSON in UTF-8. */
	get json(): Uint8Array {
		// Decoded from the bytes, because a field that was set in its encoded form is not a member of the message.
		this.#json ??= Buffer.from(toJsonString(this.#schema, fromBinary(this.#schema, this.bytes)));
		return this.#json;
	}
}
