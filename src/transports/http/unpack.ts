import { createGunzip } from "node:zlib";
import { ServiceError } from "../../errors.ts";
import { Collector, type ReserveBytes } from "./body.ts";

/**
 * Decompresses a message in gzip.
 *
 * @param maxBytes maximum number of bytes after decompression
 * @param reserve reserves memory for decompressed bytes before they are kept. It throws to refuse the message
 * @throws ServiceError `too_large`, `invalid_argument` for damaged data, or the error that `reserve` throws
 */
export async function unpack(compressed: Uint8Array, maxBytes: number, reserve: ReserveBytes): Promise<Buffer> {
	const collector = new Collector(maxBytes, reserve);
	const decoder = createGunzip();
	decoder.end(compressed);
	try {
		for await (const chunk of decoder) collector.add(chunk);
	} catch (error) {
		if (error instanceof ServiceError) throw error;
		throw new ServiceError("invalid_argument", "The compressed message is damaged", { cause: error });
	}
	return collector.finish();
}
