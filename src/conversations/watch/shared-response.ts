import { type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";

/** A message for many watchers. It is encoded once for all of them, when its bytes are first needed. */
export class SharedResponse<Response extends DescMessage> {
	readonly message: MessageShape<Response>;
	readonly #schema: Response;
	#bytes: Uint8Array | undefined;

	/** @param message must not be changed afterwards */
	constructor(schema: Response, message: MessageShape<Response>) {
		this.#schema = schema;
		this.message = message;
	}

	/** The encoded message. */
	get bytes(): Uint8Array {
		this.#bytes ??= toBinary(this.#schema, this.message);
		return this.#bytes;
	}
}
