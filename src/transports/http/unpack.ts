import { createGunzip, createInflate } from "node:zlib";
import { ServiceError } from "../../errors.ts";
import { Collector, type TakeBytes } from "./body.ts";

/**
 * Unpacks a message.
 *
 * @param take is told of the bytes that come out, before they are kept. What it throws refuses the message
 * @throws ServiceError `too_large`, `invalid_argument` for damaged data, or what `take` throws
 */
export async function unpack(
	packed: Uint8Array,
	coding: "gzip" | "deflate",
	maxBytes: number,
	take: TakeBytes,
): Promise<Buffer> {
	const unpacked = new Collector(maxBytes, take);
	const decoder = coding === "gzip" ? createGunzip() : createInflate();
	decoder.end(packed);
	try {
		for await (const chunk of decoder) unpacked.add(chunk);
	} catch (error) {
		if (error instanceof ServiceError) throw error;
		throw new ServiceError("invalid_argument", "The compressed message is damaged", { cause: error });
	}
	return unpacked.take();
}
