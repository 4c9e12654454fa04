import { createHash } from "node:crypto";
import {
	type Contents,
	type CopyTarget,
	keyOf,
	PAGE_BYTES,
	PAGE_ROWS,
	type RowKey,
	requireContents,
	type TransferDatabase,
	type TransferTable,
	transferTables,
} from "./transfer.ts";

/** Told how many rows of how many are copied, and afterwards how many entries are compared. */
export type OnCopyProgress = (step: "copied" | "compared", done: number, total: number) => void;

/** Updates, events and conversations as reads give them; the rest decides about later reads and appends. */
const PARTS = ["updates", "events", "conversations", "states", "activities", "removals"] as const;

/** What a copy holds of one kind, as it was compared with the source. */
export interface ComparedPart {
	readonly name: (typeof PARTS)[number];
	readonly count: number;
	/** SHA-256 over what reads give, in hexadecimal digits. It does not depend on the engine. */
	readonly digest: string;
	/** Records or events that are damaged in the source, and so in the copy. */
	readonly damaged: number;
}

/**
 * Copies all that a database holds into an empty one, or goes on with a copy that was broken off. Afterwards every read of
 * the copy gives what the source gives: that is compared before a service can open the copy.
 *
 * @throws Error when the target holds something else, the source was written meanwhile, or the copy differs from it
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
	for (const table of transferTables)
		await copyTable(table, source, target, (count) => {
			done += count;
			onProgress("copied", done, rows);
		});
	await requireUnchanged(source, contents);

	done = 0;
	const parts: ComparedPart[] = [];
	for (const name of PARTS) {
		const part = await compare(name, entriesOf(source, name), entriesOf(target, name), () => {
			done += 1;
			onProgress("compared", done, rows + counts.conversations);
		});
		parts.push(part);
	}
	await requireUnchanged(source, contents);
	await target.finish(contents);
	return parts;
}

async function copyTable(
	table: TransferTable,
	source: TransferDatabase,
	target: CopyTarget,
	onRows: (count: number) => void,
): Promise<void> {
	let after = await target.last(table);
	for (;;) {
		const rows = await source.rows(table, after);
		const last = rows.at(-1);
		if (last === undefined) return;
		await target.write(table, rows);
		after = keyOf(last);
		onRows(rows.length);
	}
}

async function requireUnchanged(source: TransferDatabase, contents: Contents): Promise<void> {
	try {
		requireContents(await source.contents(), contents);
	} catch (cause) {
		throw new Error("the source was written while it was copied; drop the copy and begin anew", { cause });
	}
}

/** Something that a read gives, with what a person finds it by. */
interface Entry {
	readonly key: RowKey;
	readonly value: unknown;
	readonly damaged: boolean;
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
			throw new Error(`the copy differs from the source in its ${name} at ${entry.key}; drop it and begin anew`);
		hash.update(`${text}\n`);
		count += 1;
		if (entry.damaged) damaged += 1;
		onEntry();
	}
	const more = await copy.next();
	if (more.done !== true)
		throw new Error(`the copy has ${name} that the source lacks, such as ${more.value.key}; drop it and begin anew`);
	return { name, count, digest: hash.digest("hex"), damaged };
}

function entriesOf(database: TransferDatabase, name: ComparedPart["name"]): AsyncGenerator<Entry> {
	switch (name) {
		case "updates":
			return updatesOf(database);
		case "events":
			return eventsOf(database);
		case "conversations":
			return conversationsOf(database);
		case "states":
			return rowsOf(database, "conversations");
		case "activities":
			return rowsOf(database, "activities");
		case "removals":
			return rowsOf(database, "prunedUpdates", "prunedEvents");
	}
}

const PAGE = { limit: PAGE_ROWS, maxBytes: PAGE_BYTES };

async function* updatesOf({ reads }: TransferDatabase): AsyncGenerator<Entry> {
	for (let after = 0n; ; ) {
		const page = await reads.updates.list({ after, ...PAGE, withRecords: true });
		if (page.length === 0) return;
		for (const update of page) {
			after = update.sequence;
			yield { key: after, value: update, damaged: isDamaged(update.record) };
		}
	}
}

async function* eventsOf({ reads }: TransferDatabase): AsyncGenerator<Entry> {
	for (let after = 0n; ; ) {
		const page = await reads.events.list({ after, ...PAGE });
		if (page.length === 0) return;
		for (const event of page) {
			after = event.sequence;
			yield { key: after, value: event, damaged: isDamaged(event.event) };
		}
	}
}

/** Few at once, because nothing else bounds the size of a page. */
const LISTED = 8;

/** The current records, with what events add to them. */
async function* conversationsOf({ reads }: TransferDatabase): AsyncGenerator<Entry> {
	let before: bigint | undefined;
	for (;;) {
		const page = await reads.listConversations({ conditions: [], before, limit: LISTED, withRecords: true });
		if (page.length === 0) return;
		for (const conversation of page)
			yield { key: conversation.conversationId, value: conversation, damaged: isDamaged(conversation.record) };
		before = page.at(-1)?.sequence;
	}
}

/** What no read gives by itself, but what decides about later ones. */
async function* rowsOf(
	database: TransferDatabase,
	...tables: readonly ("conversations" | "activities" | "prunedUpdates" | "prunedEvents")[]
): AsyncGenerator<Entry> {
	for (const table of tables) {
		let after: RowKey | undefined;
		for (;;) {
			const page = await database.rows(table, after);
			for (const row of page) {
				after = keyOf(row);
				yield { key: after, value: [table, row], damaged: false };
			}
			if (page.length === 0) break;
		}
	}
}

function isDamaged(of: object | undefined): boolean {
	return of !== undefined && "unreadable" in of;
}

/** The same text for equal values, whatever the order of their members: bytes as their SHA-256, integers in decimal. */
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
