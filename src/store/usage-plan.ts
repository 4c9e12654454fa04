import { hash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { fromBinary } from "@bufbuild/protobuf";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { type ConversationStats, ConversationStatsSchema } from "../../gen/conversations/v1/stats_pb.js";
import { toMicroseconds } from "../record/json/scalars.ts";
import { decodeDelta, readMembers } from "../record/record-delta.ts";
import {
	type Amounts,
	addAmounts,
	countStats,
	formatLedger,
	isSettled,
	type Ledger,
	NO_LEDGER,
	negated,
	parseLedger,
	type UsageRow,
	uncountedResponses,
} from "../usage/ledger.ts";
import { nameOf, responseKey } from "./usage-names.ts";

/**
 * Counts the usage of conversations while a group is planned: see usage/ledger.ts. The stats are read from the encoded
 * record, without decoding the rest of it.
 */

/** What is stored of the usage of a conversation beside the rows of its ledger. */
export interface UsageState {
	/** Number of the life that is counted, from 1. Rows of earlier lives stay as they are. */
	readonly life: number;
	/** `created_at` of the records of that life, in microseconds since the Unix epoch; undefined while none has it. */
	readonly lifeBeganAt: bigint | undefined;
	/** Digest of the stats that were counted last, so that equal ones are not read again. */
	readonly digest: bigint;
	/** The result of `formatLedger`; empty for an erased conversation, whose id is a random one. */
	readonly ledger: string;
	/** First sender and owner of the conversation: texts of {@link nameOf}, empty without one. */
	readonly sender: string;
	readonly owner: string;
}

/** A row of the ledger of a conversation. */
export interface LedgerRow extends UsageRow {
	readonly conversationId: string;
	readonly life: number;
	readonly sender: string;
	readonly owner: string;
}

/** A sum over conversations, of all usage in a period. */
export interface UsageSum extends Amounts {
	/** Length of the period in quarters of an hour: one of {@link PERIODS}. */
	readonly length: bigint;
	/** First quarter of the period, a multiple of its length. */
	readonly start: bigint;
	readonly usageId: string;
	readonly model: string;
	readonly agentKind: string;
	readonly sender: string;
	readonly owner: string;
}

/** Length of the periods of the sums of all time: beyond every time, before or after the Unix epoch. */
export const ALL_TIME = 2n ** 32n;
/** Lengths of the periods of sums: a quarter of an hour, an hour, a day from midnight to midnight UTC, and all time. */
export const PERIODS = [1n, 4n, 96n, ALL_TIME] as const;

/** What a group writes about usage. */
export interface WrittenUsage {
	/** By the ids of the conversations. */
	readonly states: Map<string, UsageState>;
	/** Rows to add to those with the same key, by this key. */
	readonly rows: Map<string, LedgerRow>;
}

/** The usage of a conversation, also of one that was removed. */
export interface UsageLedger {
	readonly conversationId: string;
	readonly state: UsageState;
	/** Ordered as `ledgerFrom` orders them. */
	readonly rows: readonly Omit<LedgerRow, "conversationId" | "sender" | "owner">[];
}

/** What is stored of the usage of a conversation, and what tells the times of its calls. */
export interface StoredUsage {
	/** Undefined when no usage has been counted. */
	readonly ledger: UsageLedger | undefined;
	/** The events with responses of models, by the stored forms of the responses' ids. Times as in `StoredEvent`. */
	readonly responses: readonly { readonly key: string; readonly happenedAt: bigint; readonly receivedAt: bigint }[];
}

/** A correction of the usage of a conversation. */
export interface UsageCorrection {
	readonly conversationId: string;
	/** What was stored when the correction was computed. */
	readonly known: UsageState | undefined;
	readonly state: UsageState;
	/** What is added to rows with the same keys. */
	readonly rows: readonly LedgerRow[];
}

/**
 * Returns what a correction writes; undefined when usage has been counted, or the conversation has been given another
 * owner, since it was computed.
 *
 * @param stored the present state
 * @param origin that of the conversation; undefined when it was removed
 */
export function correctedUsage(
	{ conversationId, known, state, rows }: UsageCorrection,
	stored: UsageState | undefined,
	origin: { readonly owner: string | undefined } | undefined,
): WrittenUsage | undefined {
	const isOwners = origin === undefined || nameOf(origin.owner ?? "") === state.owner;
	if (!isOwners || !isDeepStrictEqual(known, stored)) return undefined;
	const written: WrittenUsage = { states: new Map([[conversationId, state]]), rows: new Map() };
	for (const row of rows) addRow(written.rows, row);
	return written;
}

/** The stats of a record, still encoded, and what decides how they are counted. */
export interface EncodedStats {
	/** Undefined if the record has none. */
	readonly bytes: Uint8Array | undefined;
	/** See {@link UsageState.digest}. */
	readonly digest: bigint;
	/** `created_at` of the record, in microseconds since the Unix epoch. */
	readonly createdAt: bigint | undefined;
	readonly isFork: boolean;
}

/** The current record, as far as its usage is concerned. Times are microseconds since the Unix epoch. */
export interface CurrentUsage extends EncodedStats {
	readonly conversationId: string;
	/** When the conversation's present life began: see `ConversationState.lifeBeganAt`. */
	readonly lifeBeganAt: bigint | undefined;
	readonly agentKind: string;
	readonly sender: string;
	readonly owner: string;
	/** Time of the update. */
	readonly time: bigint;
}

const { stats: STATS, createdAt: CREATED_AT, forkedFromConversationId: FORKED_FROM } = ConversationInfoSchema.field;
const MEMBERS = new Set([STATS, CREATED_AT, FORKED_FROM].map(({ number }) => number));

/** Reads the stats of a whole record. Returns undefined if the bytes are no record. */
export function statsOfRecord(record: Uint8Array): EncodedStats | undefined {
	try {
		const values = readMembers(record, MEMBERS);
		const createdAt = values.get(CREATED_AT.number);
		const bytes = values.get(STATS.number);
		return {
			bytes,
			digest: digestOf(bytes),
			createdAt: createdAt && toMicroseconds(fromBinary(TimestampSchema, createdAt)),
			isFork: values.has(FORKED_FROM.number),
		};
	} catch {
		return undefined;
	}
}

/** Reads the stats of a delta. Returns undefined if it leaves the stats as they are, or is no delta. */
export function statsOfDelta(delta: Uint8Array): EncodedStats | undefined {
	try {
		const { members, values } = decodeDelta(delta);
		return members.has(STATS.number) ? statsOfRecord(values) : undefined;
	} catch {
		return undefined;
	}
}

/**
 * Returns the stored forms of the ids of responses whose times matter when stats are counted.
 *
 * @param known undefined if no usage of the conversation was counted yet, or others may be counted before these stats
 */
export function responsesToFind(known: UsageState | undefined, encoded: EncodedStats): readonly string[] {
	const { bytes, createdAt } = encoded;
	const before = isLater(createdAt, known?.lifeBeganAt) ? undefined : known;
	if (bytes === undefined || isCounted(before, encoded)) return [];
	const stats = decodeStats(bytes);
	return stats === undefined ? [] : uncountedResponses(ledgerOf(before), stats).map(responseKey);
}

/**
 * Counts the stats of a record that becomes current.
 *
 * @param known undefined if no usage of the conversation was counted yet
 * @param timeOf returns the time of the first event with the stored form of a response's id
 * @param written receives what is to be written
 * @returns the state afterwards
 */
export function countUsage(
	known: UsageState | undefined,
	current: CurrentUsage,
	timeOf: (key: string) => bigint | undefined,
	written: WrittenUsage,
): UsageState | undefined {
	const { conversationId, bytes, isFork, createdAt, agentKind, time } = current;
	const isNewLife = isLater(current.lifeBeganAt, known?.lifeBeganAt);
	const before = isNewLife ? undefined : known;
	if (isCounted(before, current)) return known;
	const stats = bytes === undefined ? undefined : decodeStats(bytes);
	// Bytes that cannot be read are not counted. The record is unreadable, too.
	if (bytes !== undefined && stats === undefined) return known;
	// The first record of a fork decides what was taken over from the source, also if that is nothing.
	const isEmpty = stats === undefined || Object.keys(stats.usageToMetrics).length === 0;
	if (known === undefined && isEmpty && !isFork) return undefined;
	const counted = countStats(ledgerOf(before), {
		stats,
		createdAt,
		isFork,
		agentKind,
		time,
		timeOf: (responseId) => (responseId === "" ? undefined : timeOf(responseKey(responseId))),
	});
	const life = known === undefined ? 1 : known.life + (isNewLife ? 1 : 0);
	const lifeBeganAt = current.lifeBeganAt ?? before?.lifeBeganAt;
	const whose = { sender: nameOf(current.sender), owner: nameOf(current.owner) };
	const state = { life, lifeBeganAt, digest: current.digest, ledger: formatLedger(counted.ledger), ...whose };
	written.states.set(conversationId, state);
	for (const row of counted.rows) addRow(written.rows, { ...row, conversationId, life, ...whose });
	return state;
}

/** Returns the sums over conversations that rows of ledgers add to. */
export function sumsOf(rows: Iterable<LedgerRow>): UsageSum[] {
	const sums = new Map<string, UsageSum>();
	for (const { conversationId: _, life: __, quarter, ...row } of rows)
		for (const length of PERIODS) {
			const start = quarter - (((quarter % length) + length) % length);
			const { model, usageId, agentKind, sender, owner } = row;
			const key = JSON.stringify([String(length), String(start), model, usageId, agentKind, sender, owner]);
			const sum = sums.get(key);
			sums.set(key, { ...row, length, start, ...(sum === undefined ? {} : addAmounts(sum, row)) });
		}
	// In the order of their keys, so that two transactions cannot wait for each other.
	return [...sums].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, sum]) => sum);
}

/** Returns the rows by which sums change when the conversations of rows of ledgers get an owner or a sender. */
export function rowsOfMove(
	rows: readonly LedgerRow[],
	to: Partial<Pick<LedgerRow, "owner" | "sender">>,
): readonly LedgerRow[] {
	return rows.flatMap((row) => [
		{ ...row, ...negated(row) },
		{ ...row, ...to },
	]);
}

function addRow(rows: Map<string, LedgerRow>, full: LedgerRow): void {
	const row = { ...full, usageId: nameOf(full.usageId), model: nameOf(full.model), agentKind: nameOf(full.agentKind) };
	const { conversationId, life, usageId, model, agentKind, quarter } = row;
	const key = JSON.stringify([conversationId, life, usageId, model, agentKind, String(quarter)]);
	const known = rows.get(key);
	rows.set(key, known === undefined ? row : { ...row, ...addAmounts(known, row) });
}

/** Returns whether the same stats were counted last, and would be counted in the same way. */
function isCounted(before: UsageState | undefined, { digest, createdAt }: EncodedStats): boolean {
	return before?.digest === digest && (createdAt === undefined || isSettled(before.ledger));
}

function ledgerOf(before: UsageState | undefined): Ledger {
	return before === undefined ? NO_LEDGER : parseLedger(before.ledger);
}

/** Returns 64 bits of the SHA-256 of bytes; 0 without bytes. */
function digestOf(bytes: Uint8Array | undefined): bigint {
	return bytes === undefined ? 0n : hash("sha256", bytes, "buffer").readBigInt64BE();
}

function decodeStats(bytes: Uint8Array): ConversationStats | undefined {
	try {
		return fromBinary(ConversationStatsSchema, bytes);
	} catch {
		return undefined;
	}
}

function isLater(time: bigint | undefined, other: bigint | undefined): boolean {
	return time !== undefined && other !== undefined && time > other;
}
