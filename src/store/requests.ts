import type { CallSignal } from "../errors.ts";
import { compact, compactAll } from "../memory.ts";
import type { GroupRequest } from "./duplicates.ts";
import type { NewEvents } from "./entries.ts";

/** The part of a {@link CallSignal} that can cross to a thread. */
export interface SenderDeadline {
	readonly senderDeadline: CallSignal["deadline"];
}

/** Returns a batch with its byte strings in buffers that hold nothing else, because whole buffers cross to a thread. */
export function compactBatch(batch: NewEvents): NewEvents {
	const { effect } = batch;
	const texts = compactAll(batch.events.map(({ text }) => text));
	const version = effect?.version;
	return {
		...batch,
		events: batch.events.map((event, index) => ({ ...event, text: texts[index] ?? event.text })),
		effect: effect && {
			...effect,
			version: version && {
				...version,
				summary: compact(version.summary),
				record: { ...version.record, bytes: compact(version.record.bytes) },
			},
		},
	};
}

/** Returns the byte strings of a request. */
export function byteStringsOf(request: GroupRequest): Uint8Array[] {
	if ("update" in request) return [request.update.record.bytes, request.update.summary];
	const { events, effect } = request;
	const { version } = effect ?? {};
	return [...events.map(({ text }) => text), ...(version === undefined ? [] : [version.summary, version.record.bytes])];
}

/** Returns the number of bytes of records and events by which the size of a group is bounded. */
export function bytesOf(request: GroupRequest): number {
	return byteStringsOf(request).reduce((size, { byteLength }) => size + byteLength, 0);
}
