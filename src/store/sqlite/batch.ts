import { compact, compactAll } from "../../memory.ts";
import type { NewEvents } from "../store.ts";

/** A batch whose byte strings have memory that holds nothing else, to cross to another thread. */
export function compactBatch(batch: NewEvents): NewEvents {
	const { live } = batch;
	const texts = compactAll(batch.events.map(({ text }) => text));
	const version = live?.version;
	return {
		...batch,
		events: batch.events.map((event, index) => ({ ...event, text: texts[index] ?? event.text })),
		live: live && {
			...live,
			version: version && {
				summary: compact(version.summary),
				record: { ...version.record, bytes: compact(version.record.bytes) },
			},
		},
	};
}

/** The byte strings of a batch. */
export function bytesOfBatch({ events, live }: NewEvents): Uint8Array[] {
	const { version } = live ?? {};
	return [...events.map(({ text }) => text), ...(version === undefined ? [] : [version.summary, version.record.bytes])];
}
