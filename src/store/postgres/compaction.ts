import { BYTES_OF_STEP, type NextTexts, type RepackedRange, TEXTS_OF_STEP } from "../compaction.ts";
import { packedColumnsFrom } from "../rows.ts";
import { bigint } from "../values.ts";
import type { Query, Session } from "./transaction.ts";

/** Returns the texts of the events after a sequence, of which there is at least one if there are any. */
export async function findTexts(session: Session, after: bigint): Promise<NextTexts> {
	const [rows = [], [position] = []] = await session.query(
		{
			text: `
				SELECT e.sequence, e.text, e.unpacked_size, e.checksum FROM (
					SELECT sequence, sum(octet_length(text)) OVER w AS total, row_number() OVER w AS number
					FROM (
						SELECT sequence, text FROM conversation_updates.events WHERE sequence > $1 ORDER BY sequence LIMIT $2
					) n WINDOW w AS (ORDER BY sequence)
				) s JOIN conversation_updates.events e ON e.sequence = s.sequence
				WHERE s.total <= $3 OR s.number = 1 ORDER BY e.sequence
			`,
			values: [after, TEXTS_OF_STEP, BYTES_OF_STEP],
		},
		{ text: "SELECT newest_event FROM conversation_updates.positions" },
	);
	const texts = rows.map((row) => ({ sequence: bigint(row.sequence), ...packedColumnsFrom(row, "text") }));
	return { texts, newest: bigint(position?.newest_event) };
}

/** Returns the query that stores texts that were compressed. */
export function writeTextsQuery({ texts }: RepackedRange): Query {
	return {
		text: `
			UPDATE conversation_updates.events e SET text = r.text, unpacked_size = r.unpacked_size, checksum = r.checksum
			FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[])
				AS r (sequence, text, unpacked_size, checksum, former_checksum)
			WHERE e.sequence = r.sequence AND e.checksum = r.former_checksum
		`,
		values: [
			texts.map(({ sequence }) => sequence),
			texts.map(({ record }) => Buffer.from(record)),
			texts.map(({ unpackedSize }) => unpackedSize),
			texts.map(({ checksum }) => checksum),
			texts.map(({ formerChecksum }) => formerChecksum),
		],
	};
}
