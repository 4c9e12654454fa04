import { UpdateParser } from "../conversations/ingest/update-parser.ts";
import { recordJson } from "../conversations/read/get.ts";
import { EventFormat } from "../events/event-format.ts";
import { type ApplyRequest, LiveRecords } from "../events/live-records.ts";
import { compact, release } from "../memory.ts";
import { RecordFormat } from "../record/record-format.ts";
import { RecordVault } from "../record/secrets/record-vault.ts";
import { serve } from "../threads/serve.ts";
import type { IntakeCalls, IntakeData } from "./calls.ts";

/** Worker thread that parses, checks, protects and compares records and events. */

serve<IntakeData, IntakeCalls>(({ encryptionKeys, eventTimeZone }) => {
	const format = new RecordFormat();
	const vault = new RecordVault(format, encryptionKeys);
	const parser = new UpdateParser(format, vault);
	const events = new EventFormat(format, encryptionKeys, eventTimeZone);
	const live = new LiveRecords(format, vault, events);
	return {
		methods: {
			fromJson: (body) => releasing([body], () => parser.fromJson(bufferOf(body))),
			fromRequest: (request) => releasing([request], () => parser.fromRequest(request)),
			eventsFromJson: ({ conversationId, body }) =>
				releasing([body], () => live.applyToHeld(events.parse(conversationId, bufferOf(body)))),
			eventsFromRequest: (request) => releasing([request], () => live.applyToHeld(events.fromRequest(request))),
			applyEvents: (request) => releasing(bytesOf(request), () => live.apply(request)),
			isSame: ({ stored, arriving }) => vault.isSame(stored, arriving),
			openEncoded: ({ record, form }) => compact(vault.openEncoded(record.bytes, record, form)),
			openJson: ({ record, form }) => recordJson(format, vault, record, form),
			close: () => undefined,
		},
	};
});

function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
	return Buffer.from(buffer, byteOffset, byteLength);
}

function bytesOf({ present, updates }: ApplyRequest): Uint8Array[] {
	const texts = updates.map(({ event }) => event.text);
	return present.record === undefined ? texts : [...texts, present.record.bytes];
}

/** Returns the result of `work`, and frees the memory of `bytes` afterwards. */
function releasing<Result>(bytes: readonly Uint8Array[], work: () => Result): Result {
	try {
		return work();
	} finally {
		for (const one of bytes) release(one);
	}
}
