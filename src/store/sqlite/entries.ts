import { originColumn } from "../rows.ts";
import type { EventRow, UpdateRow } from "../stored-rows.ts";
import type { Statements } from "./statements.ts";

/**
 * @param conversation row id of the update's conversation
 * @param owner that of the conversation
 */
export function insertUpdate(
	statements: Statements,
	conversation: bigint,
	owner: string | undefined,
	update: UpdateRow,
): void {
	const { record } = update;
	statements
		.prepare("INSERT INTO updates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
		.run(
			update.sequence,
			conversation,
			update.change,
			update.current ? 1 : 0,
			update.previousSequence ?? null,
			update.receivedAt,
			update.origin,
			update.base ?? null,
			update.size,
			record.redactionVersion,
			record.schemaVersion,
			record.unpackedSize,
			record.checksum,
			update.summary,
			update.activity ?? null,
			update.sender ?? null,
			record.record,
		);
	if (owner !== undefined)
		statements.prepare("INSERT INTO updates_of_owners VALUES (?, ?)").run(owner, update.sequence);
}

/**
 * Inserts an event.
 *
 * @param activity row id of its conversation's activity
 * @param owner that of the conversation
 */
export function insertEvent(
	statements: Statements,
	activity: bigint,
	owner: string | undefined,
	event: Omit<EventRow, "conversationId">,
): void {
	statements
		.prepare("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
		.run(
			event.sequence,
			activity,
			event.eventId,
			event.receivedAt,
			event.happenedAt,
			event.kind,
			event.source,
			event.redactionVersion,
			event.text.unpackedSize,
			event.text.checksum,
			event.secrets,
			event.llmResponseId ?? null,
			event.sender ?? null,
			originColumn(event.origin),
			event.text.record,
		);
	if (owner !== undefined) statements.prepare("INSERT INTO events_of_owners VALUES (?, ?)").run(owner, event.sequence);
}
