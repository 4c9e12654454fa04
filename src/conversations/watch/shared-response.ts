import { type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";

/** A message that many watchers are given. It is encoded once for all of them, when the first one needs it. */
export class SharedResponse<Response extends DescMessage> {
	readonly message: MessageShape<Response>;
	readonly #schema: Response;
	#bytes: Uint8Array | undefined;

	/** @param message nobody may change it afterwards */
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
