import { type DescMessage, fromBinary, type MessageShape, toBinary, toJsonString } from "@bufbuild/protobuf";

/** A message for many watchers. It is made, and encoded once for all of them, when it is first needed. */
export class SharedResponse<Response extends DescMessage> {
	readonly #schema: Response;
	readonly #make: () => MessageShape<Response>;
	readonly #entryJson: (() => string) | undefined;
	/** Undefined when the message is encoded, because a decoded record takes several times the memory. */
	#message: MessageShape<Response> | undefined;
	#bytes: Uint8Array | undefined;
	#json: Uint8Array | undefined;
	#event: Uint8Array | undefined;
	/** Sequence through which a watcher has received everything once it has the message. */
	readonly sequence: bigint;

	/**
	 * @param make makes the message, which must not be changed afterwards
	 * @param entryJson makes the JSON text of the entry of the message; undefined for a heartbeat
	 */
	constructor(schema: Response, sequence: bigint, make: () => MessageShape<Response>, entryJson?: () => string) {
		this.#schema = schema;
		this.sequence = sequence;
		this.#make = make;
		this.#entryJson = entryJson;
	}

	/** The message. It is decoded each time after the encoded form was needed. */
	get message(): MessageShape<Response> {
		if (this.#bytes !== undefined) return fromBinary(this.#schema, this.#bytes);
		this.#message ??= this.#make();
		return this.#message;
	}

	get bytes(): Uint8Array {
		this.#bytes ??= toBinary(this.#schema, this.message);
		this.#message = undefined;
		return this.#bytes;
	}

	/** The message as ProtoJSON in UTF-8. */
	get json(): Uint8Array {
		this.#json ??= Buffer.from(toJsonString(this.#schema, this.message));
		return this.#json;
	}

	/**
	 * The entry of the message as an event of a `text/event-stream` (HTML Standard, section 9.2.5), in UTF-8. Undefined for
	 * a heartbeat.
	 */
	get event(): Uint8Array | undefined {
		if (this.#entryJson === undefined) return undefined;
		// A line break would end the data. In JSON it stands only between tokens, where a space is the same.
		this.#event ??= Buffer.from(`id: ${this.sequence}\ndata: ${this.#entryJson().replaceAll(/[\r\n]+/g, " ")}\n\n`);
		return this.#event;
	}
}
