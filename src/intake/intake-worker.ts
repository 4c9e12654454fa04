import { UpdateParser } from "../conversations/ingest/update-parser.ts";
import { RecordFormat } from "../record/record-format.ts";
import { RecordVault } from "../record/secrets/record-vault.ts";
import { compact } from "../threads/protocol.ts";
import { serve } from "../threads/serve.ts";
import type { IntakeCalls, IntakeData } from "./calls.ts";

/** The thread that reads, checks, protects and compares records. */

serve<IntakeData, IntakeCalls>(({ aliases, encryptionKeys }) => {
	const format = new RecordFormat(aliases);
	const vault = new RecordVault(format.plan, encryptionKeys);
	const parser = new UpdateParser(format, vault);
	return {
		methods: {
			fromJson: (body) => parser.fromJson(Buffer.from(body.buffer, body.byteOffset, body.byteLength)),
			fromRequest: (request) => parser.fromRequest(request),
			isSame: ({ stored, arriving }) => vault.isSame(stored, arriving),
			openEncoded: ({ record, form }) => compact(vault.openEncoded(record.bytes, record, form)),
			close: () => undefined,
		},
	};
});
