import { UpdateParser } from "../conversations/ingest/update-parser.ts";
import { recordJson } from "../conversations/read/get.ts";
import { RecordFormat } from "../record/record-format.ts";
import { RecordVault } from "../record/secrets/record-vault.ts";
import { compact, release } from "../threads/protocol.ts";
import { serve } from "../threads/serve.ts";
import type { IntakeCalls, IntakeData } from "./calls.ts";

/** The thread that reads, checks, protects and compares records. */

serve<IntakeData, IntakeCalls>(({ encryptionKeys }) => {
	const format = new RecordFormat();
	const vault = new RecordVault(format, encryptionKeys);
	const parser = new UpdateParser(format, vault);
	return {
		methods: {
			fromJson: (body) =>
				releasing(body, () => parser.fromJson(Buffer.from(body.buffer, body.byteOffset, body.byteLength))),
			fromRequest: (request) => releasing(request, () => parser.fromRequest(request)),
			isSame: ({ stored, arriving }) => vault.isSame(stored, arriving),
			openEncoded: ({ record, form }) => compact(vault.openEncoded(record.bytes, record, form)),
			openJson: ({ record, form }) => recordJson(format, vault, record, form),
			close: () => undefined,
		},
	};
});

/** What `work` gives; the bytes are of no use afterwards. */
function releasing<Result>(bytes: Uint8Array, work: () => Result): Result {
	try {
		return work();
	} finally {
		release(bytes);
	}
}
