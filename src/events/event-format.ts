import type { KeyObject } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { IngestConversationEventsRequestSchema } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { type ConversationEvent, ConversationEventSchema } from "../../gen/conversations/v1/event_pb.js";
import { ServiceError, type Violation, withConversation } from "../errors.ts";
import { bufferOf } from "../memory.ts";
import {
	checkJson,
	type ParsedJson,
	parseExactJson,
	readExactJson,
	stringifyExactJson,
} from "../record/json/exact-json.ts";
import {
	type ExactJson,
	type ExactJsonObject,
	isJsonObject,
	memberOf,
	parsePointer,
	setMember,
	textOf,
	toPointer,
} from "../record/json/json-value.ts";
import { type Microseconds, parseUuid } from "../record/json/scalars.ts";
import { type PlainPlan, planMessage } from "../record/plan.ts";
import type { RecordFormat } from "../record/record-format.ts";
import { beginsLikeCiphertext, Cipher, isCiphertext } from "../record/secrets/cipher.ts";
import type { Secret } from "../record/secrets/free-form-secrets.ts";
import { MAX_SECRETS, tooManySecrets } from "../record/secrets/record-vault.ts";
import type { SecretsForm } from "../record/secrets/secret-walk.ts";
import { decodeIngestRequest } from "../record/validation/message-size.ts";
import { isLonger, MAX_VIOLATIONS, RecordSchema } from "../record/validation/schema.ts";
import {
	brokenRulesError,
	findViolations,
	NOT_A_DATE_TIME,
	NOT_A_MAP,
	valueError,
	violation,
	wrongLength,
} from "../record/validation/violations.ts";
import type { NewEvent, NewEvents, ProtectedEvent } from "../store/entries.ts";
import { namedEvent } from "../store/gaps.ts";
import { MAX_CLOCK_SKEW } from "../store/ordering.ts";
import { responseKey } from "../usage/names.ts";
import { hasUserinfo, REDACTED, replaceUserinfo } from "../userinfo.ts";
import { beginning, eventTimes, messageText, reportedError } from "./event-parts.ts";
import { ENVELOPE, eventSecrets, replaceAt } from "./event-secrets.ts";
import { HIDDEN, reportedLeafOf, STATE_UPDATE } from "./state-update.ts";

export const MAX_EVENT_ID_LENGTH = 256;
/** Maximum number of characters that are stored of the text that an event says. */
const MAX_MESSAGE = 200;

export interface ParsedEvents {
	readonly batch: NewEvents;
	/** The events of the batch as JSON with protected secrets, in the same order. */
	readonly json: readonly ExactJsonObject[];
	/**
	 * Microseconds from the latest time of an event, as its sender wrote it, to the arrival of the batch. Negative when
	 * that time is later. Undefined for a batch without events.
	 */
	readonly delay: Microseconds | undefined;
}

/**
 * Converts events between the forms that arrive, are stored and are returned. Built once at start. What reads a stored event
 * throws a ServiceError `data_loss` when its text is no event.
 */
export class EventFormat {
	readonly #timeZone: string;
	readonly #senderTimeZones: ReadonlyMap<string, string>;
	/** Schema of a batch: the field `events` of the request by itself. */
	readonly #schema: RecordSchema;
	readonly #secrets: ReturnType<typeof eventSecrets>;
	readonly #cipher: Cipher;
	readonly #encrypts: boolean;

	/**
	 * @param keys 32 bytes each: the first encrypts, all decrypt; without keys, secrets are redacted at ingest
	 * @param timeZone time zone of times without an offset: `UTC` or a name of the IANA time zone database
	 * @param senderTimeZones time zones of senders that have another one, by their names
	 */
	constructor(
		format: RecordFormat,
		keys: readonly KeyObject[],
		timeZone: string,
		senderTimeZones: ReadonlyMap<string, string> = new Map(),
	) {
		this.#timeZone = timeZone;
		this.#senderTimeZones = senderTimeZones;
		this.#schema = new RecordSchema(planBatch());
		this.#secrets = eventSecrets(format);
		this.#cipher = new Cipher(keys);
		this.#encrypts = keys.length > 0;
	}

	/**
	 * Parses a batch of events from a JSON array, checks it and protects its secrets. Of events with the same id, only
	 * the first is used. Members keep their order, except that names that are array indexes come first.
	 *
	 * @param conversationId UUID in any form
	 * @param sender name of the batch's sender, which decides the time zone of its times
	 * @param receivedAt when the batch arrived. Default: now
	 * @throws ServiceError `invalid_argument` when the id is no UUID; `invalid_record` when the text is not JSON, exceeds
	 *   a limit of records ({@link parseExactJson}, {@link MAX_SECRETS}), or has invalid events: with at most
	 *   {@link MAX_VIOLATIONS} violations, whose paths begin with the index of the event
	 */
	parse(conversationId: string, body: Buffer, sender = "", receivedAt = now()): ParsedEvents {
		const from = { sender, receivedAt };
		return forConversation(uuidOf(conversationId), (id) => this.#read(id, parseExactJson(body), [], from));
	}

	/**
	 * As {@link parse}, with an encoded IngestConversationEventsRequest. Throws also `invalid_argument` when the bytes are none.
	 */
	fromRequest(request: Uint8Array, sender = "", receivedAt = now()): ParsedEvents {
		const { conversationId, events } = decodeIngestRequest(IngestConversationEventsRequestSchema, request);
		return forConversation(uuidOf(conversationId), (id) => {
			const violations: Violation[] = [];
			let mayHaveSurrogates = false;
			const json = events.map((event, index) => {
				const envelope: ExactJsonObject = {};
				for (const [name, property] of ENVELOPE) if (event[property] !== undefined) envelope[name] = event[property];
				const members = readMembers(event.membersJson, [index, "members_json"], violations);
				if (members === undefined) return envelope;
				mayHaveSurrogates ||= members.mayHaveSurrogates;
				// A null `parent_id` has no field, unless the field is set too.
				const misplaced = Object.keys(members.json).filter(
					(name) => ENVELOPE.has(name) && (members.json[name] !== null || name !== "parent_id" || name in envelope),
				);
				for (const name of misplaced)
					violations.push({
						path: [index, "members_json", name],
						...valueError("this member has a field of its own in the message"),
					});
				return misplaced.length > 0 ? envelope : { ...envelope, ...members.json };
			});
			return this.#read(id, checkJson(json, mayHaveSurrogates), violations, { sender, receivedAt });
		});
	}

	/**
	 * Returns the JSON text of a stored event. Its secrets are shown as those of records: see `RecordVault.open`. Throws
	 * `data_loss` also when a secret cannot be decrypted for `plaintext`.
	 */
	open(conversationId: string, { text, secrets, redactionVersion }: ProtectedEvent, form: SecretsForm): string {
		const stored = bufferOf(text).toString();
		// A caller who may see plain text may also see the secrets that an older release did not recognize.
		const needsNoSearch = redactionVersion === this.#secrets.version || form === "plaintext";
		if (needsNoSearch && (secrets.length === 0 || form === "encrypted")) return stored;
		const event = readStored(conversationId, stored);
		if (form !== "encrypted") this.#reveal(conversationId, event, secrets, form === "plaintext", REDACTED);
		if (needsNoSearch) return stringifyExactJson(event);
		return this.#secrets.replace(event, true, (secret) =>
			form === "encrypted" && isCiphertext(String(secret)) ? secret : REDACTED,
		);
	}

	read(conversationId: string, event: ProtectedEvent): ExactJsonObject {
		return readStored(conversationId, this.open(conversationId, event, "redacted"));
	}

	/**
	 * Returns the members of a stored event, with its secrets in plain text. One that was redacted when it arrived, because
	 * there was no key, is {@link HIDDEN}. Throws as {@link open} does.
	 */
	members(conversationId: string, { text, secrets }: ProtectedEvent): ExactJsonObject {
		const event = readStored(conversationId, bufferOf(text).toString());
		this.#reveal(conversationId, event, secrets, true, HIDDEN);
		return event;
	}

	/**
	 * Replaces the protected secrets of an event in place.
	 *
	 * @param decrypts whether ciphertexts are decrypted; otherwise they are redacted
	 * @param redacted replaces a secret that is stored redacted
	 */
	#reveal(
		conversationId: string,
		event: ExactJsonObject,
		secrets: readonly string[],
		decrypts: boolean,
		redacted: string,
	): void {
		const cipher = this.#cipher.of(conversationId);
		for (const pointer of secrets) {
			const show = (stored: string): Secret => {
				if (!decrypts) return REDACTED;
				// In one text, a release with fewer rules encrypted only some of the passwords. Without a key, none is.
				return beginsLikeCiphertext(stored) ? cipher.decrypt(stored, placeOf(event, pointer)) : stored;
			};
			const isReplaced = replaceAt(event, parsePointer(pointer) ?? [], (value) => {
				const stored = String(value);
				if (stored === REDACTED) return redacted;
				if (hasUserinfo(stored)) return replaceUserinfo(stored, (userinfo) => String(show(userinfo)));
				// A text in which a user name and a password were redacted is no ciphertext.
				return beginsLikeCiphertext(stored) ? show(stored) : stored;
			});
			if (!isReplaced) throw unreadable(conversationId);
		}
	}

	/** Checks a parsed batch, of which violations may be known already, and protects its secrets. */
	#read(
		conversationId: string,
		parsed: ParsedJson,
		found: readonly Violation[],
		{ sender, receivedAt }: { readonly sender: string; readonly receivedAt: Microseconds },
	): ParsedEvents {
		const timeZone = this.#senderTimeZones.get(sender) ?? this.#timeZone;
		const violations = [...found, ...findViolations(this.#schema, parsed)];
		const envelopes = new Map<string, Envelope>();
		let after: Microseconds | undefined;
		for (const [index, event] of Array.isArray(parsed.json) ? parsed.json.entries() : []) {
			if (violations.length >= MAX_VIOLATIONS) break;
			const [id, timestamp, source, kind] = ["id", "timestamp", "source", "kind"].map((name) => memberOf(event, name));
			if (typeof id !== "string" || typeof timestamp !== "string" || !isJsonObject(event)) continue;
			if (typeof source !== "string" || typeof kind !== "string") continue;
			const { at: happenedAt, laterAt } = eventTimes(timestamp, timeZone, { after, receivedAt }) ?? {};
			if (happenedAt !== undefined && (after === undefined || happenedAt > after)) after = happenedAt;
			if (id === "" || isLonger(id, MAX_EVENT_ID_LENGTH))
				violations.push(violation([index, "id"], wrongLength(id, 1, MAX_EVENT_ID_LENGTH), id));
			else if (happenedAt === undefined) violations.push(violation([index, "timestamp"], NOT_A_DATE_TIME, timestamp));
			else if ([id, source, kind, memberOf(event, "parent_id")].some(hasPassword))
				violations.push(violation([index], PASSWORD_IN_ENVELOPE));
			else if (!envelopes.has(id)) envelopes.set(id, { event, id, source, kind, happenedAt, laterAt });
		}
		if (violations.length > 0)
			throw brokenRulesError(violations.slice(0, MAX_VIOLATIONS), "the events", conversationId);
		const cipher = this.#encrypts ? this.#cipher.of(conversationId) : undefined;
		let count = 0;
		const hide = (secret: Secret, place: string): string => {
			count++;
			if (count > MAX_SECRETS) throw tooManySecrets(conversationId);
			return cipher === undefined ? REDACTED : cipher.encrypt(secret, place);
		};
		const read = [...envelopes.values()];
		const events = encodeTexts(read.map((envelope) => this.#protect(envelope, receivedAt, parsed.size.large, hide)));
		const batch = { conversationId, receivedAt, events, effect: undefined };
		return { batch, json: read.map(({ event }) => event), delay: after === undefined ? undefined : receivedAt - after };
	}

	/** @param hide returns the text that replaces a secret; it takes the secret's place as {@link placeOf} returns it */
	#protect(
		{ event, id, source, kind, happenedAt, laterAt }: Envelope,
		receivedAt: Microseconds,
		bigints: boolean,
		hide: (secret: Secret, place: string) => string,
	): UnencodedEvent {
		const pointers = new Set<string>();
		const text = this.#secrets.replace(event, bigints, (secret, pointer) => {
			pointers.add(pointer);
			return hide(secret, placeOf(event, pointer));
		});
		return {
			eventId: id,
			// A later time would order the event after all that follow.
			happenedAt: happenedAt > receivedAt + MAX_CLOCK_SKEW ? receivedAt : happenedAt,
			...(laterAt === undefined ? {} : { laterAt }),
			kind,
			source,
			isLeaf: kind !== STATE_UPDATE,
			// After the secrets are hidden.
			...derivedFields(event),
			text,
			secrets: [...pointers],
			redactionVersion: this.#secrets.version,
		};
	}
}

function derivedFields(
	event: ExactJsonObject,
): Pick<NewEvent, "message" | "error" | "llmResponseId" | "parentId" | "reportedLeaf"> {
	const said = messageText(event);
	const responseId = textOf(memberOf(event, "llm_response_id"));
	return {
		message: said && beginning(said, MAX_MESSAGE),
		error: reportedError(event),
		// One with a URL that has a password is ignored.
		llmResponseId: responseId === "" || hasUserinfo(responseId) ? undefined : responseKey(responseId),
		parentId: namedEvent(memberOf(event, "parent_id")),
		reportedLeaf: memberOf(event, "kind") === STATE_UPDATE ? namedEvent(reportedLeafOf(event)) : undefined,
	};
}

function hasPassword(member: ExactJson | undefined): boolean {
	return typeof member === "string" && hasUserinfo(member);
}

/** These members are stored as they are. */
const PASSWORD_IN_ENVELOPE = valueError("id, source, kind and parent_id must not contain a URL with a password");

function now(): Microseconds {
	return BigInt(Date.now()) * 1000n;
}

/** An event, and the members that all events have. */
interface Envelope {
	readonly event: ExactJsonObject;
	readonly id: string;
	readonly source: string;
	readonly kind: string;
	/** As its sender wrote it. */
	readonly happenedAt: Microseconds;
	readonly laterAt: Microseconds | undefined;
}

type UnencodedEvent = Omit<NewEvent, "text"> & { readonly text: string };

/** Encodes the texts of events in UTF-8, in memory that they share and that calls to threads can copy. */
function encodeTexts(events: readonly UnencodedEvent[]): NewEvent[] {
	// Not in Node.js's buffer pool, which holds other bytes too.
	const bytes = UTF8.encode(events.map(({ text }) => text).join(""));
	let end = 0;
	return events.map((event) => {
		const start = end;
		end += Buffer.byteLength(event.text);
		return { ...event, text: bytes.subarray(start, end) };
	});
}

const UTF8 = new TextEncoder();

/** Converts an event's JSON text, as {@link EventFormat.open} returns it, to a message. */
export function toMessage(text: string): ConversationEvent {
	const event = create(ConversationEventSchema);
	const members: ExactJsonObject = {};
	const json = readExactJson(text);
	for (const [name, member] of isJsonObject(json) ? Object.entries(json) : []) {
		const property = ENVELOPE.get(name);
		if (property !== undefined && typeof member === "string") event[property] = member;
		else setMember(members, name, member);
	}
	event.membersJson = stringifyExactJson(members);
	return event;
}

function planBatch(): PlainPlan {
	const request = planMessage(IngestConversationEventsRequestSchema);
	const events = request.form === "object" ? request.members.get("events") : undefined;
	if (request.form !== "object" || events === undefined) throw new Error("a request must have a list of events");
	return { ...request, form: "bare", fields: [events] };
}

function uuidOf(text: string): string {
	const id = parseUuid(text);
	if (id === undefined) throw new ServiceError("invalid_argument", "conversation_id is not a UUID");
	return id;
}

/** Returns the result of `read`. Adds the id of the conversation to its errors. */
function forConversation<Result>(conversationId: string, read: (conversationId: string) => Result): Result {
	try {
		return read(conversationId);
	} catch (error) {
		throw withConversation(error, conversationId);
	}
}

/** Parses the other members of an event; undefined when there are none, or they are invalid. Then adds violations. */
function readMembers(text: string, path: Violation["path"], violations: Violation[]) {
	if (text === "") return undefined;
	try {
		const { json, mayHaveSurrogates } = parseExactJson(Buffer.from(text));
		if (isJsonObject(json)) return { json, mayHaveSurrogates };
		violations.push({ path, ...NOT_A_MAP });
	} catch (error) {
		if (!(error instanceof ServiceError)) throw error;
		violations.push(...error.violations.map((violation) => ({ ...violation, path: [...path, ...violation.path] })));
	}
	return undefined;
}

/** Returns the place of a secret, to which its ciphertext is bound. Places in a record begin with a slash instead. */
function placeOf(event: ExactJsonObject, pointer: string): string {
	return `#${toPointer([String(event.id)])}${pointer}`;
}

function readStored(conversationId: string, text: string): ExactJsonObject {
	try {
		const event = readExactJson(text);
		if (isJsonObject(event)) return event;
	} catch (cause) {
		throw unreadable(conversationId, cause);
	}
	throw unreadable(conversationId);
}

function unreadable(conversationId: string, cause?: unknown): ServiceError {
	return new ServiceError("data_loss", "The stored event cannot be read", { conversationId, cause });
}
