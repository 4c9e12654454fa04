import { type DescMessage, fromBinary, type MessageShape, toBinary, toJsonString } from "@bufbuild/protobuf";

/** A message for many watchers. It is encoded once for all of them, when its encoded form is first needed. */
export class SharedResponse<Response extends DescMessage> {
	readonly #schema: Response;
	/** Undefined when the message is encoded, because a decoded record takes several times the memory. */
	#message: MessageShape<Response> | undefined;
	#bytes: Uint8Array | undefined;
	#json: Uint8Array | undefined;

	/** @param message must not be changed afterwards */
	constructor(schema: Response, message: MessageShape<Response>) {
		this.#schema = schema;
		this.#message = message;
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
