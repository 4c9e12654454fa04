import { randomUUID } from "node:crypto";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
	ConversationExecutionStatus,
	ConversationExecutionStatusSchema,
	ConversationInfoSchema,
} from "../../gen/conversations/v1/conversation_pb.js";
import { type ConversationSummary, ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { CallSignal } from "../../src/errors.ts";
import { fromMicroseconds } from "../../src/record/json/scalars.ts";
import { planEnum } from "../../src/record/plan.ts";
import type { Condition } from "../../src/store/condition.ts";
import type { StoredConversation } from "../../src/store/conversation-lists.ts";
import type { AppendedUpdate, NewUpdate, StoredUpdate } from "../../src/store/entries.ts";
import { namedEvent } from "../../src/store/gaps.ts";
import { factsOf } from "../../src/store/head.ts";
import { orderTime } from "../../src/store/ordering.ts";
import type { Store } from "../../src/store/store.ts";

const STATUSES = planEnum(ConversationExecutionStatusSchema).byName;

/** A time of 2026 in microseconds since the Unix epoch. */
export const start = 1_790_000_000_000_000n;
export const second = 1_000_000n;

/** Values that lists filter by, in the form of the tests: the status as its JSON name, times in microseconds. */
export interface Columns {
	readonly status: string;
	readonly agentKind: string;
	readonly model: string;
	readonly title: string | undefined;
	readonly parentId: string | undefined;
	readonly createdAt: bigint | undefined;
	readonly updatedAt: bigint | undefined;
	readonly tags: Readonly<Record<string, string>>;
	/** Undefined: not reported. */
	readonly cost?: number | undefined;
	/** Tokens in prompts. Undefined: not reported. */
	readonly tokens?: bigint | undefined;
}

/** A filter of lists, in the form of the tests. */
export interface Filter {
	readonly status?: string | undefined;
	readonly agentKind?: string | undefined;
	readonly model?: string | undefined;
	readonly parentId?: string | undefined;
	readonly tags?: Readonly<Record<string, string>> | undefined;
	readonly tagKey?: string | undefined;
	readonly createdFrom?: bigint | undefined;
	readonly createdTo?: bigint | undefined;
	readonly updatedFrom?: bigint | undefined;
	readonly updatedTo?: bigint | undefined;
	readonly titleContains?: string | undefined;
}

/** An update, and the values that its summary was made from. */
export interface Sample extends NewUpdate {
	readonly columns: Columns;
	/** See `HeadState.runStartedAt`; set by {@link withRun}. */
	readonly runStartedAt?: bigint | undefined;
}

let made = 0;

/** Returns an update that differs from all others. */
export function sample(
	update: {
		readonly conversationId?: string;
		readonly receivedAt?: bigint;
		readonly record?: Uint8Array;
		readonly redactionVersion?: number;
		readonly columns?: Partial<Columns>;
	} = {},
): Sample {
	made += 1;
	const { conversationId = randomUUID(), receivedAt = start + BigInt(made) * second } = update;
	const bytes = update.record ?? Buffer.from(`record ${made}`);
	const columns = {
		status: "idle",
		agentKind: "Agent",
		model: "model-a",
		title: undefined,
		parentId: undefined,
		createdAt: start,
		updatedAt: undefined,
		tags: {},
		...update.columns,
	};
	return {
		conversationId,
		receivedAt,
		record: { bytes, redactionVersion: update.redactionVersion ?? made },
		...learned(bytes, toBinary(ConversationSummarySchema, summaryOf(columns, conversationId))),
		columns,
	};
}

/** Returns what an append has beside a record, as the intake derives it. A record that is none names no last event. */
export function learned(record: Uint8Array, summary: Uint8Array): Pick<NewUpdate, "summary" | "facts" | "leaf"> {
	const facts = factsOf(fromBinary(ConversationSummarySchema, summary));
	try {
		return { summary, facts, leaf: namedEvent(fromBinary(ConversationInfoSchema, record).leafEventId) };
	} catch {
		return { summary, facts, leaf: undefined };
	}
}

/** Returns the summary of a record that has these values. */
export function summaryOf(columns: Columns, id = ""): ConversationSummary {
	const { status, title, parentId, createdAt, updatedAt, agentKind, model, tags, cost, tokens } = columns;
	return create(ConversationSummarySchema, {
		id,
		executionStatus: STATUSES.get(status) ?? ConversationExecutionStatus.UNSPECIFIED,
		agentKind,
		model,
		tags,
		...(cost === undefined ? {} : { accumulatedCost: cost }),
		...(tokens === undefined ? {} : { tokens: { promptTokens: tokens } }),
		...(title === undefined ? {} : { title }),
		...(parentId === undefined ? {} : { parentConversationId: parentId }),
		...(createdAt === undefined ? {} : { createdAt: fromMicroseconds(createdAt) }),
		...(updatedAt === undefined ? {} : { updatedAt: fromMicroseconds(updatedAt) }),
	});
}

/** Converts a filter to the conditions that the store takes. */
export function conditions(filter: Filter): Condition[] {
	const { status, agentKind, model, parentId, tags, tagKey, createdFrom, createdTo, updatedFrom, updatedTo } = filter;
	const equal = (field: Extract<Condition, { kind: "equal" }>["field"], value: string | number | undefined) =>
		value === undefined ? [] : [{ kind: "equal", field, value } as const];
	const time = (field: "createdAt" | "updatedAt", bound: { from?: bigint | undefined; to?: bigint | undefined }) => {
		const { from, to } = bound;
		if (from === undefined && to === undefined) return [];
		return [
			{ kind: "time", field, ...(from === undefined ? {} : { from }), ...(to === undefined ? {} : { to }) } as const,
		];
	};
	return [
		...equal("executionStatus", status === undefined ? undefined : (STATUSES.get(status) ?? 0)),
		...equal("agentKind", agentKind),
		...equal("model", model),
		...equal("parentConversationId", parentId),
		...Object.entries(tags ?? {}).map(([key, value]) => ({ kind: "tag", key, value }) as const),
		...(tagKey === undefined ? [] : [{ kind: "tag", key: tagKey, value: undefined } as const]),
		...time("createdAt", { from: createdFrom }),
		...time("createdAt", { to: createdTo }),
		...time("updatedAt", { from: updatedFrom }),
		...time("updatedAt", { to: updatedTo }),
		...(filter.titleContains === undefined ? [] : [{ kind: "title", contains: filter.titleContains } as const]),
	];
}

/** Appends a copy of an update, because the store takes ownership of its byte strings. */
export async function append(
	store: Store,
	{ columns: _, runStartedAt: __, record, summary, ...rest }: Sample,
	signal?: CallSignal,
): Promise<AppendedUpdate> {
	const own = learned(record.bytes, bytes(summary));
	const update = { ...rest, ...own, record: { ...record, bytes: bytes(record.bytes) } };
	return await store.append(update, signal);
}

/**
 * Returns an update with the times that the store fills in where its record has none.
 *
 * @param createdAt that of the conversation's current record before, or the time of its first update
 */
export function withTimes(update: Sample, createdAt = update.receivedAt): Sample {
	const times = {
		createdAt: update.columns.createdAt ?? createdAt,
		updatedAt: update.columns.updatedAt ?? update.receivedAt,
	};
	return { ...update, summary: summaryWithTimes(update.summary, times), columns: { ...update.columns, ...times } };
}

/**
 * Returns an update with the start of the last run in its summary.
 *
 * @param before the conversation's current update before
 */
export function withRun(update: Sample, before?: Pick<Sample, "columns" | "runStartedAt">): Sample {
	const { columns, receivedAt } = update;
	const starts = columns.status === "running" && before?.columns.status !== "running";
	const runStartedAt = starts ? (orderTime(columns.updatedAt, receivedAt) ?? receivedAt) : before?.runStartedAt;
	if (runStartedAt === undefined) return update;
	const run = create(ConversationSummarySchema, { runStartedAt: fromMicroseconds(runStartedAt) });
	return {
		...update,
		runStartedAt,
		summary: Buffer.concat([update.summary, toBinary(ConversationSummarySchema, run)]),
	};
}

/** Returns an encoded summary, with those of the times appended that it lacks. */
export function summaryWithTimes(
	summary: Uint8Array,
	{ createdAt, updatedAt }: { readonly createdAt: bigint; readonly updatedAt: bigint },
): Uint8Array {
	const has = fromBinary(ConversationSummarySchema, summary);
	const missing = create(ConversationSummarySchema, {
		...(has.createdAt === undefined ? { createdAt: fromMicroseconds(createdAt) } : {}),
		...(has.updatedAt === undefined ? { updatedAt: fromMicroseconds(updatedAt) } : {}),
	});
	return Buffer.concat([summary, toBinary(ConversationSummarySchema, missing)]);
}

/** Returns an appended update as the store should return it. */
export function stored(update: Sample, appended: AppendedUpdate, previous?: AppendedUpdate): StoredUpdate {
	const { sequence, change, current } = appended;
	return {
		sequence,
		change,
		current,
		origin: UpdateOrigin.POSTED,
		conversationId: update.conversationId,
		receivedAt: update.receivedAt,
		previousSequence: previous?.sequence,
		sender: update.poster?.sender,
		owner: update.poster?.owner,
		summary: storedSummary(update),
		record: { ...update.record, bytes: bytes(update.record.bytes) },
	};
}

/** Returns the same bytes as a plain Uint8Array, because `toEqual` does not take a Buffer for equal to one. */
export function bytes(value: Uint8Array): Uint8Array {
	return new Uint8Array(value);
}

/** Returns the summary of an update as the store should return it. */
function storedSummary(update: Sample): Uint8Array {
	const complete = withTimes(update);
	return bytes((update.runStartedAt === undefined ? withRun(complete) : complete).summary);
}

/** Returns the expected list entry of a conversation with this current update. */
export function listed(update: Sample, { sequence }: AppendedUpdate, withRecords = false): StoredConversation {
	return {
		conversationId: update.conversationId,
		sequence,
		summary: storedSummary(update),
		record: withRecords ? { ...update.record, bytes: bytes(update.record.bytes) } : undefined,
	};
}

/**
 * Reads a view, again as long as it does not follow in time: on a busy machine, a view of thousands of conversations may need
 * more than 5 seconds.
 */
export async function whenFollowed<Result>(read: () => Promise<Result>): Promise<Result> {
	for (;;)
		try {
			return await read();
		} catch (error) {
			if (!(error instanceof Error && error.message.startsWith("the view of"))) throw error;
		}
}

/** Reads all pages of a list, one after the other. */
export async function pages(
	store: Store,
	filter: Filter,
	limit: number,
	withRecords = false,
): Promise<StoredConversation[][]> {
	const all: StoredConversation[][] = [];
	let before: bigint | undefined;
	for (;;) {
		const query = { conditions: conditions(filter), before, limit, withRecords };
		const page = await whenFollowed(() => store.listConversations(query));
		if (page.length > 0) all.push(page);
		before = page.at(-1)?.sequence;
		if (page.length < limit) return all;
	}
}

/** Returns whether a record meets a filter: a simple model of the engines' conditions. */
export function matches(columns: Columns, filter: Filter): boolean {
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

/** Returns the items in every order. */
export function permutations<Item>(items: readonly Item[]): Item[][] {
	if (items.length === 0) return [[]];
	return items.flatMap((item, n) => permutations(items.toSpliced(n, 1)).map((others) => [item, ...others]));
}
