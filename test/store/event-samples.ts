import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { CallSignal } from "../../src/errors.ts";
import { fromMicroseconds } from "../../src/record/json/scalars.ts";
import { encodeDelta } from "../../src/record/record-delta.ts";
import type { AppendedEvents, EventEffect, NewEvent, NewEvents, StoredEvent } from "../../src/store/entries.ts";
import type { Store } from "../../src/store/store.ts";
import { bytes, type Columns, sample, start } from "./samples.ts";

type Members = MessageInitShape<typeof ConversationInfoSchema>;

let made = 0;

/** Returns an event that differs from all others: by default a leaf without a message. */
export function event(of: Partial<NewEvent> = {}): NewEvent {
	made += 1;
	const { eventId = `event-${made}` } = of;
	return {
		eventId,
		text: Buffer.from(JSON.stringify({ id: eventId, made })),
		secrets: [],
		redactionVersion: made,
		happenedAt: start + BigInt(made),
		kind: "MessageEvent",
		source: "agent",
		isLeaf: true,
		message: undefined,
		llmResponseId: undefined,
		...of,
	};
}

/** Returns a state update, which is an event that sets members of the record. */
export function stateUpdate(of: Partial<NewEvent> = {}): NewEvent {
	return event({ kind: "ConversationStateUpdateEvent", source: "environment", isLeaf: false, ...of });
}

/** Returns a batch of events, by default without an effect. */
export function batch(conversationId: string, events: readonly NewEvent[], of: Partial<NewEvents> = {}): NewEvents {
	return { conversationId, receivedAt: start, events, effect: undefined, ...of };
}

/** Appends a copy of a batch, because the store takes ownership of its byte strings. */
export function appendEvents(
	store: Store,
	{ events, effect, ...rest }: NewEvents,
	signal?: CallSignal,
): Promise<AppendedEvents | undefined> {
	const version = effect?.version;
	const copied: NewEvents = {
		...rest,
		events: events.map((one) => ({ ...one, text: bytes(one.text) })),
		effect: effect && {
			...effect,
			version: version && {
				...version,
				summary: bytes(version.summary),
				record: { ...version.record, bytes: bytes(version.record.bytes) },
			},
		},
	};
	return store.appendEvents(copied, signal);
}

/** Returns an event of a batch as the store should return it. */
export function storedEvent(
	{ conversationId, receivedAt, poster, isFetched }: NewEvents,
	one: NewEvent,
	sequence: bigint,
): StoredEvent {
	const { text, secrets, redactionVersion, happenedAt, kind, source } = one;
	const event = { text: bytes(text), secrets, redactionVersion };
	const { sender, owner } = poster ?? { sender: undefined, owner: undefined };
	const origin = isFetched ? UpdateOrigin.RECONCILED : UpdateOrigin.POSTED;
	return { sequence, conversationId, receivedAt, happenedAt, kind, source, sender, origin, owner, event };
}

/** Returns an encoded record. */
export function record(members: Members): Uint8Array {
	return toBinary(ConversationInfoSchema, create(ConversationInfoSchema, members));
}

/** Returns an encoded delta that sets the title. */
export function titleDelta(title: string): Uint8Array {
	return encodeDelta([ConversationInfoSchema.field.title.number], record({ title }));
}

/** Returns an effect whose version is a delta that sets the title. `columns` are values of the summary. */
export function effect(
	expects: bigint,
	title: string,
	columns: Partial<Columns> = {},
	versions: { readonly redactionVersion?: number } = {},
): EventEffect {
	return effectOf(expects, titleDelta(title), { title, ...columns }, versions);
}

/** Returns an effect whose version is an encoded delta, or the first record of a conversation. */
export function effectOf(
	expects: bigint,
	encoded: Uint8Array,
	columns: Partial<Columns> = {},
	versions: { readonly redactionVersion?: number } = {},
): EventEffect {
	const { summary, facts } = sample({ columns });
	const { redactionVersion = 7 } = versions;
	return {
		expects,
		next: expects + 1n,
		memberTimes: `reported over ${expects}`,
		version: { summary, facts, record: { bytes: encoded, redactionVersion } },
	};
}

/** Returns an encoded summary with the fields of an activity appended. */
export function withActivity(
	summary: Uint8Array,
	count: bigint,
	lastAt: bigint,
	{ lastMessage, runStartedAt }: { readonly lastMessage?: string | undefined; readonly runStartedAt?: bigint } = {},
): Uint8Array {
	const activity = create(ConversationSummarySchema, {
		eventCount: count,
		lastActivityAt: fromMicroseconds(lastAt),
		...(lastMessage === undefined ? {} : { lastMessage }),
		...(runStartedAt === undefined ? {} : { runStartedAt: fromMicroseconds(runStartedAt) }),
	});
	return bytes(Buffer.concat([summary, toBinary(ConversationSummarySchema, activity)]));
}
