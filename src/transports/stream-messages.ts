import type { DescMessage } from "@bufbuild/protobuf";
import type { Gate } from "../access/gate.ts";
import type { WatchBatch } from "../conversations/watch/watch.ts";
import { ServiceError } from "../errors.ts";
import type { RpcMethod } from "../rpc/rpc-method.ts";
import type { Admission } from "./admission.ts";

/** What the transports of RPCs share. */
export interface RpcTransportOptions {
	readonly methods: readonly RpcMethod[];
	readonly gate: Gate;
	readonly admission: Pick<Admission, "enter">;
	readonly held: HeldBatches;
	/** Maximum number of bytes of a request message with records or events, after decompression. */
	readonly maxBodyBytes: number;
	/** Ends all streams when it is aborted. */
	readonly stopping: AbortSignal;
}

/** Number of bytes before each message: a flag for compression, and the length of the message (gRPC over HTTP/2). */
export const PREFIX_BYTES = 5;

/** Size in bytes from which a message becomes a chunk of its own, because that costs less than a copy. */
const OWN_CHUNK = 16 * 1024;

/**
 * Returns the bytes of uncompressed length-prefixed messages (gRPC over HTTP/2, "Requests": compressed-flag, length,
 * message; the same in gRPC-Web and in the streams of Connect), in few chunks.
 */
export function lengthPrefixed(messages: readonly Uint8Array[]): Uint8Array[] {
	const chunks: Uint8Array[] = [];
	let gathered: Uint8Array[] = [];
	const flush = () => {
		if (gathered.length > 0) chunks.push(Buffer.concat(gathered));
		gathered = [];
	};
	for (const message of messages) {
		const prefix = Buffer.alloc(PREFIX_BYTES);
		prefix.writeUInt32BE(message.byteLength, 1);
		gathered.push(prefix);
		if (message.byteLength >= OWN_CHUNK) {
			flush();
			chunks.push(message);
		} else gathered.push(message);
	}
	flush();
	return chunks;
}

/**
 * Waits until the client has taken what `write` sends, or the stream is over. The callback of a write to a client that has
 * gone may never be called.
 */
export async function untilTaken(over: AbortSignal, write: (onTaken: () => void) => void): Promise<void> {
	if (over.aborted) return;
	await new Promise<void>((resolve) => {
		const done = (): void => {
			over.removeEventListener("abort", done);
			resolve();
		};
		over.addEventListener("abort", done);
		write(done);
	});
}

type Form = "bytes" | "json" | "event";

/** A batch of messages that at least one client has not taken yet. */
interface Held {
	/** The messages as they are sent: as server-sent events, or else length-prefixed. */
	readonly chunks: readonly Uint8Array[];
	readonly giveBack: () => void;
	holders: number;
}

/**
 * Counts the bytes of the messages that watches hold for their clients, over all transports. Watches that send the same
 * messages share their bytes, which then count once.
 */
export class HeldBatches {
	readonly #admission: Pick<Admission, "reserve">;
	readonly #held: Readonly<Record<Form, Map<WatchBatch<DescMessage>, Held>>> = {
		bytes: new Map(),
		json: new Map(),
		event: new Map(),
	};

	constructor(admission: Pick<Admission, "reserve">) {
		this.#admission = admission;
	}

	/**
	 * Holds a batch for a client that has to take it.
	 *
	 * @returns its chunks, and what ends the holding: the client has taken it, or is gone. Further calls have no effect
	 * @throws ServiceError `rate_limited` when the batch has no room. The client may continue after its last message
	 */
	hold(batch: WatchBatch<DescMessage>, form: Form) {
		const held = this.#held[form].get(batch) ?? this.#begin(batch, form);
		held.holders += 1;
		let holds = true;
		const release = (): void => {
			if (!holds) return;
			holds = false;
			held.holders -= 1;
			if (held.holders > 0) return;
			this.#held[form].delete(batch);
			held.giveBack();
		};
		return { chunks: held.chunks, release };
	}

	#begin(batch: WatchBatch<DescMessage>, form: Form): Held {
		const messages = batch.flatMap((response) => response[form] ?? []);
		const bytes = messages.reduce((sum, { byteLength }) => sum + byteLength, 0);
		let giveBack: () => void;
		try {
			giveBack = this.#admission.reserve("watch", bytes);
		} catch (cause) {
			const message = "Too many bytes wait for watches that are not read; continue after the last sequence number";
			throw new ServiceError("rate_limited", message, { cause });
		}
		const chunks = form === "event" ? [Buffer.concat(messages)] : lengthPrefixed(messages);
		const held: Held = { chunks, giveBack, holders: 0 };
		this.#held[form].set(batch, held);
		return held;
	}
}
