import { createHash, randomUUID } from "node:crypto";
import { encodeUpdate } from "../../src/store/encoded-update.ts";
import type {
	Appended,
	ConversationFilter,
	NewUpdate,
	RecordColumns,
	Store,
	StoredConversation,
	StoredUpdate,
} from "../../src/store/store.ts";

/** A time of 2026 in microseconds since the Unix epoch. */
export const start = 1_790_000_000_000_000n;
export const second = 1_000_000n;

let made = 0;

/** An update that differs from every other one. */
export function sample(
	update: Partial<Omit<NewUpdate, "columns">> & { readonly columns?: Partial<RecordColumns> } = {},
): NewUpdate {
	made += 1;
	const record = update.record ?? Buffer.from(`record ${made}`);
	return {
		conversationId: randomUUID(),
		digest: createHash("sha256").update(`${made}`).update(record).digest(),
		summary: Buffer.from(`summary ${made}`),
		receivedAt: start + BigInt(made) * second,
		seal: made,
		...update,
		record,
		columns: {
			status: "idle",
			agentKind: "Agent",
			model: "model-a",
			title: undefined,
			parentId: undefined,
			createdAt: undefined,
			updatedAt: undefined,
			tags: {},
			...update.columns,
		},
	};
}

/** Appends an update as its maker sends it. */
export async function append(store: Store, update: NewUpdate): Promise<Appended> {
	return await store.append(encodeUpdate(update));
}

/** What the store should give back for an update that it appended. */
export function stored(
	update: NewUpdate,
	appended: Appended,
	previous?: Appended,
): Omit<StoredUpdate, "record"> & { record: Uint8Array } {
	return {
		...appended,
		conversationId: update.conversationId,
		receivedAt: update.receivedAt,
		previousSequence: previous?.sequence,
		record: bytes(update.record),
		seal: update.seal,
	};
}

/** The same bytes as a plain array, since a Buffer is not equal to one. */
export function bytes(value: Uint8Array): Uint8Array {
	return new Uint8Array(value);
}

/** What the list should give back for a conversation whose current update this is. */
export function listed(update: NewUpdate, { sequence }: Appended, withRecords = false): StoredConversation {
	return {
		conversationId: update.conversationId,
		sequence,
		summary: bytes(update.summary),
		record: withRecords ? bytes(update.record) : undefined,
	};
}

/** Every page of a list, one after the other. */
export async function pages(
	store: Store,
	filter: ConversationFilter,
	limit: number,
	withRecords = false,
): Promise<StoredConversation[][]> {
	const all: StoredConversation[][] = [];
	let before: bigint | undefined;
	for (;;) {
		const page = await store.listConversations({ filter, before, limit, withRecords });
		if (page.length > 0) all.push(page);
		before = page.at(-1)?.sequence;
		if (page.length < limit) return all;
	}
}

/** Whether a record meets a filter, told in the plainest way. */
export function matches(columns: RecordColumns, filter: ConversationFilter): boolean {
	const within = (time: bigint | undefined, from: bigint | undefined, to: bigint | undefined) =>
		(from === undefined && to === undefined) ||
		(time !== undefined && (from === undefined || time >= from) && (to === undefined || time < to));
	const lower = (text: string) => text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
	return (
		(filter.status === undefined || columns.status === filter.status) &&
		(filter.agentKind === undefined || columns.agentKind === filter.agentKind) &&
		(filter.model === undefined || columns.model === filter.model) &&
		(filter.parentId === undefined || columns.parentId === filter.parentId) &&
		(filter.tagKey === undefined || Object.hasOwn(columns.tags, filter.tagKey)) &&
		Object.entries(filter.tags ?? {}).every(
			([key, value]) => Object.hasOwn(columns.tags, key) && columns.tags[key] === value,
		) &&
		within(columns.createdAt, filter.createdFrom, filter.createdTo) &&
		within(columns.updatedAt, filter.updatedFrom, filter.updatedTo) &&
		(filter.titleContains === undefined ||
			(columns.title !== undefined && lower(columns.title).includes(lower(filter.titleContains))))
	);
}
