import { readRange } from "../read-logs.ts";
import { getRetentionTime } from "../remove.ts";
import type { SequenceRange } from "../sequence-log.ts";
import type { Session } from "../session.ts";
import type { Store } from "../store.ts";
import { type RowKey, type RowKind, rowKinds, type StoredRows } from "../stored-rows.ts";
import { integer, type Row } from "../values.ts";

/** How many rows of each kind a database has. */
export type Counts = Readonly<Record<RowKind, number>>;

/** The sequences of both logs, and the time of retention (see `Store.saveRetentionTime`). */
export interface Ranges {
	readonly updates: SequenceRange;
	readonly events: SequenceRange;
	readonly retentionTime: bigint | undefined;
}

/** Sequences after which an export begins. */
export interface After {
	readonly update: bigint;
	readonly event: bigint;
}

/** The beginning of both logs. */
export const BEGINNING: After = { update: 0n, event: 0n };

/** Maximum number of rows that are read and written at once. */
export const PAGE_ROWS = 1_000;
/** Maximum number of bytes of the uncompressed records or texts of a page. A single row may exceed it. */
export const PAGE_BYTES = 4 * 2 ** 20;

/** Reads the sequences of both logs and the time of retention. */
export async function readRanges(session: Session): Promise<Ranges> {
	return {
		updates: await readRange(session, { log: "updates" }),
		events: await readRange(session, { log: "events" }),
		retentionTime: await getRetentionTime(session),
	};
}

/** A database that can be exported. All its methods see it as it was at one moment. */
export interface ExportSource extends AsyncDisposable {
	ranges(): Promise<Ranges>;
	/** Counts the rows of each kind; of the updates, erasures and events only those after a sequence. */
	counts(after: After): Promise<Counts>;
	/**
	 * Returns a page of rows of a kind in the order of their keys.
	 *
	 * @param after key after which the page begins; undefined for the first page
	 * @returns at most {@link PAGE_ROWS} rows and about {@link PAGE_BYTES} bytes; none when there are no more
	 */
	rows<Kind extends RowKind>(kind: Kind, after: RowKey | undefined): Promise<readonly StoredRows[Kind][]>;
	/** The store's read of updates, which returns whole records. */
	readonly listUpdates: Store["updates"]["list"];
}

/** An empty database into which an export is imported. No service can open it before the import is finished. */
export interface ImportTarget extends AsyncDisposable, Pick<ExportSource, "rows"> {
	/**
	 * Begins an import, or continues one that was interrupted.
	 *
	 * @param manifest first line of the export
	 * @throws Error when the database holds anything but a part of this export
	 */
	begin(manifest: string): Promise<void>;
	/** Returns the key of the last row of a kind; undefined when it has none. */
	last(kind: RowKind): Promise<RowKey | undefined>;
	/** Writes rows after the last one of a kind, in one transaction. */
	write<Kind extends RowKind>(kind: Kind, rows: readonly StoredRows[Kind][]): Promise<void>;
	/**
	 * Turns the complete import into a database that a service can open.
	 *
	 * @throws Error when the database has other ranges or counts afterwards
	 */
	finish(ranges: Ranges, counts: Counts): Promise<void>;
}

/** Reads a row with the count of each kind in a column of its own. */
export function countsOf(row: Row): Counts {
	return {
		conversation: integer(row.conversation),
		activity: integer(row.activity),
		update: integer(row.update),
		event: integer(row.event),
		usage: integer(row.usage),
		prunedUpdates: integer(row.prunedUpdates),
		prunedEvents: integer(row.prunedEvents),
		gaps: integer(row.gaps),
		accessKey: integer(row.accessKey),
		sender: integer(row.sender),
		refusedPost: integer(row.refusedPost),
		erasure: integer(row.erasure),
		audit: integer(row.audit),
		endpoint: integer(row.endpoint),
		budget: integer(row.budget),
		notice: integer(row.notice),
	};
}

/** @throws Error when a database does not have the wanted counts or ranges */
export function requireContents(found: readonly [Ranges, Counts], wanted: readonly [Ranges, Counts]): void {
	const [foundText, wantedText] = [found, wanted].map(describe);
	if (foundText !== wantedText) throw new Error(`the database holds ${foundText}, expected ${wantedText}`);
}

function describe([{ updates, events, retentionTime }, counts]: readonly [Ranges, Counts]): string {
	const range = ({ newest, prunedThrough, lastRemoval }: SequenceRange) => [newest, prunedThrough, lastRemoval];
	return [...range(updates), ...range(events), retentionTime ?? "none", ...rowKinds.map((kind) => counts[kind])].join();
}
