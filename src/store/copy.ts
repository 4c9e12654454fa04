import { createHash } from "node:crypto";
import type { StoredConversation, StoredEvent, StoredUpdate } from "./store.ts";
import {
	type Contents,
	type CopyTarget,
	keyOf,
	PAGE_BYTES,
	PAGE_ROWS,
	type RowKey,
	requireContents,
	type TransferDatabase,
	type TransferRows,
	type TransferTable,
	transferTables,
} from "./transfer.ts";

/** Receives how many of the rows are copied, and afterwards how many of the entries are compared. */
export type OnCopyProgress = (step: "copied" | "compared", done: number, total: number) => void;

/** The entries of one kind, which are equal in the source and the copy. */
export interface ComparedPart {
	readonly name: string;
	readonly count: number;
	/** SHA-256 over the entries, in hexadecimal digits. It does not depend on the engine. */
	readonly digest: string;
	/** Number of records or events that are damaged in the source, and therefore in the copy. */
	readonly damaged: number;
}

/**
 * Copies all data of a database into an empty one, or continues a copy that was interrupted. Then compares the two
 * databases entry by entry. Only afterwards can a service open the copy.
 *
 * @throws Error when the target holds other data, the source was written meanwhile, or the copy differs from the source
 * @throws ServiceError when one of the databases fails
 */
export async function copyStore(
	source: TransferDatabase,
	target: CopyTarget,
	onProgress: OnCopyProgress,
): Promise<readonly ComparedPart[]> {
	const contents = await source.contents();
	await target.begin(contents);
	const { counts } = contents;
	const rows = transferTables.reduce((sum, table) => sum + counts[table], 0);
	let done = Object.values((await target.contents()).counts).reduce((sum, count) => sum + count, 0);
	for (const table of transferTables) {
		const start = await target.last(table);
		const read = (last: TransferRow | undefined) => source.rows(table, last === undefined ? start : keyOf(last));
		for await (const page of pages(read)) {
			await target.write(table, page);
			done += page.length;
			onProgress("copied", done, rows);
		}
	}
	await requireUnchanged(source, contents);

	done = 0;
	const parts: ComparedPart[] = [];
	for (const [name, entriesOf] of Object.entries(PARTS)) {
		const part = await compare(name, entriesOf(source), entriesOf(target), () => {
			done += 1;
			onProgress("compared", done, rows + counts.conversations);
		});
		parts.push(part);
	}
	await requireUnchanged(source, contents);
	await target.finish(contents);
	return parts;
}

async function requireUnchanged(source: TransferDatabase, contents: Contents): Promise<void> {
	try {
		requireContents(await source.contents(), contents);
	} catch (cause) {
		throw new Error("the source was written while it was copied; delete the copy and start again", { cause });
	}
}

/** One entry of a part: what a read returns. */
interface Entry {
	/** Names the entry in error messages. */
	readonly key: RowKey;
	readonly value: unknown;
	readonly damaged: boolean;
}

type TransferRow = TransferRows[TransferTable];

const PAGE = { limit: PAGE_ROWS, maxBytes: PAGE_BYTES };
/** Conversations in a page. Few, because the bytes of such a page have no limit. */
const PAGE_CONVERSATIONS = 8;

/** Reads the parts to compare: first what reads return, then the rows that only later reads and appends depend on. */
const PARTS: Readonly<Record<string, (database: TransferDatabase) => AsyncGenerator<Entry>>> = {
	async *updates({ reads }) {
		const read = (last: StoredUpdate | undefined) =>
			reads.updates.list({ after: last?.sequence ?? 0n, ...PAGE, withRecords: true });
		for await (const page of pages(read))
			for (const value of page) yield { key: keyOf(value), value, damaged: isDamaged(value.record) };
	},
	async *events({ reads }) {
		const read = (last: StoredEvent | undefined) => reads.events.list({ after: last?.sequence ?? 0n, ...PAGE });
		for await (const page of pages(read))
			for (const value of page) yield { key: keyOf(value), value, damaged: isDamaged(value.event) };
	},
	async *conversations({ reads }) {
		const read = (last: StoredConversation | undefined) =>
			reads.listConversations({ conditions: [], before: last?.sequence, limit: PAGE_CONVERSATIONS, withRecords: true });
		for await (const page of pages(read))
			for (const value of page) yield { key: value.conversationId, value, damaged: isDamaged(value.record) };
	},
	states: (database) => rowsOf(database, "conversations"),
	activities: (database) => rowsOf(database, "activities"),
	async *removals(database) {
		yield* rowsOf(database, "prunedUpdates");
		yield* rowsOf(database, "prunedEvents");
	},
};

/** Reads the rows of a table as entries. */
async function* rowsOf(database: TransferDatabase, table: TransferTable): AsyncGenerator<Entry> {
	const read = (last: TransferRow | undefined) => database.rows(table, last && keyOf(last));
	for await (const page of pages(read))
		for (const row of page) yield { key: keyOf(row), value: [table, row], damaged: false };
}

/** Reads pages until an empty one. `read` receives the last item of the page before. */
async function* pages<Item>(
	read: (last: Item | undefined) => Promise<readonly Item[]>,
): AsyncGenerator<readonly Item[]> {
	for (let page = await read(undefined); page.length > 0; page = await read(page.at(-1))) yield page;
}

async function compare(
	name: ComparedPart["name"],
	source: AsyncGenerator<Entry>,
	copy: AsyncGenerator<Entry>,
	onEntry: () => void,
): Promise<ComparedPart> {
	const hash = createHash("sha256");
	let [count, damaged] = [0, 0];
	for await (const entry of source) {
		const [text, other] = [canonical(entry.value), await copy.next()];
		if (other.done === true || canonical(other.value.value) !== text)
			throw new Error(
				`the copy differs from the source in its ${name} at ${entry.key}; delete the copy and start again`,
			);
		hash.update(`${text}\n`);
		count += 1;
		if (entry.damaged) damaged += 1;
		onEntry();
	}
	const more = await copy.next();
	if (more.done !== true)
		throw new Error(
			`the copy has ${name} that the source lacks, such as ${more.value.key}; delete the copy and start again`,
		);
	return { name, count, digest: hash.digest("hex"), damaged };
}

function isDamaged(of: object | undefined): boolean {
	return of !== undefined && "unreadable" in of;
}

/**
 * Returns a text that is the same for equal values, whatever the order of their members. Bytes are written as their
 * SHA-256, bigints in decimal.
 */
function canonical(value: unknown): string {
	if (value instanceof Uint8Array) return createHash("sha256").update(value).digest("hex");
	if (typeof value === "bigint") return `${value}`;
	if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
	if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "undefined";
	const members = Object.entries(value).filter(([, member]) => member !== undefined);
	return `{${members
		.sort(([a], [b]) => (a < b ? -1 : 1))
		.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`)
		.join()}}`;
}
