import type { CallSignal } from "../../call-signal.ts";
import { compact, compactAll } from "../../memory.ts";
import type { NewEvents } from "../entries.ts";

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

/** Returns the byte strings of a batch. */
export function bytesOfBatch({ events, effect }: NewEvents): Uint8Array[] {
	const { version } = effect ?? {};
	return [...events.map(({ text }) => text), ...(version === undefined ? [] : [version.summary, version.record.bytes])];
}
