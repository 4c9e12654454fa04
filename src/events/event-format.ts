import type { KeyObject } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { IngestConversationEventsRequestSchema } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { type ConversationEvent, ConversationEventSchema } from "../../gen/conversations/v1/event_pb.js";
import { ServiceError, type Violation } from "../errors.ts";
import { deriveEncoder } from "../record/json/encode.ts";
import {
	measureWithinBounds,
	type ParsedJson,
	parseExactJson,
	readExactJson,
	stringifyExactJson,
	tooManyValues,
} from "../record/json/exact-json.ts";
import { type ExactJson, type ExactJsonObject, isJsonObject, memberOf, setMember } from "../record/json/json-value.ts";
import { MAX_VALUES } from "../record/json/measure.ts";
import { parsePointer, toPointer } from "../record/json/pointer.ts";
import { type Microseconds, parseUuid } from "../record/json/scalars.ts";
import { type PlainPlan, planMessage } from "../record/plan/plan.ts";
import type { RecordFormat } from "../record/record-format.ts";
import { Cipher, isCiphertext } from "../record/secrets/cipher.ts";
import type { Secret } from "../record/secrets/free-form-secrets.ts";
import { MAX_SECRETS, tooManySecrets } from "../record/secrets/record-vault.ts";
import { REDACTED, type SecretsForm } from "../record/secrets/secret-walk.ts";
import { hasUserinfo, replaceUserinfo } from "../record/secrets/userinfo.ts";
import { brokenRules, judge } from "../record/validation/judge.ts";
import { decodeRequest } from "../record/validation/message-size.ts";
import { isLonger, MAX_VIOLATIONS, RecordSchema } from "../record/validation/schema.ts";
import { NOT_A_DATE_TIME, NOT_A_MAP, valueError, violation, wrongLength } from "../record/validation/violations.ts";
import { MAX_CLOCK_SKEW } from "../store/ordering.ts";
import type { NewEvent, NewEvents, ProtectedEvent } from "../store/store.ts";
import { EventSecrets, replaceAt } from "./event-secrets.ts";
import { eventTime } from "./event-time.ts";
import { beginning, messageText } from "./message-text.ts";
import { STATE_UPDATE } from "./statements.ts";

/** Most characters of an event's id. */
export const MAX_EVENT_ID = 256;
/** Most characters that are kept of what an event says. */
const MAX_MESSAGE = 200;

/** A batch that arrived. */
export interface ParsedEvents {
	readonly batch: NewEvents;
	/** What the texts of the batch's events say. */
	readonly json: readonly ExactJsonObject[];
}

/** Events in their forms: what arrives, what is stored and what is given. Built once at start. */
export class EventFormat {
	readonly #timeZone: string;
	/** Of a batch: the field `events` of the request by itself. */
	readonly #schema: RecordSchema;
	readonly #encodeEnvelope: (event: ConversationEvent) => ExactJson;
	/** The members that all events have. */
	readonly #envelope: ReadonlySet<string>;
	readonly #secrets: EventSecrets;
	readonly #cipher: Cipher;
	readonly #encrypts: boolean;

	/**
	 * @param keys 32 bytes each: the first encrypts, all decrypt; with none, secrets are redacted before they are kept
	 * @param timeZone of times without an offset: `UTC` or a name of the IANA time zone database
	 */
	constructor(format: RecordFormat, keys: readonly KeyObject[], timeZone: string) {
		const [batch, event] = planBatch();
		this.#timeZone = timeZone;
		this.#schema = new RecordSchema(batch);
		this.#encodeEnvelope = deriveEncoder(event);
		this.#envelope = new Set(event.members.keys());
		this.#secrets = new EventSecrets(format, this.#envelope);
		this.#cipher = new Cipher(keys);
		this.#encrypts = keys.length > 0;
	}

	/**
	 * Reads a batch of events from a JSON array: checks it and protects its secrets. Of events with the same id the first
	 * counts. Members keep their order, except that names which are array indexes come first.
	 *
	 * @param conversationId in any form of UUID
	 * @throws ServiceError `invalid_argument` when the id is none; `invalid_record` when the text is not JSON, exceeds a
	 *   bound of records ({@link parseExactJson}, {@link MAX_SECRETS}), or with what is wrong with the events: at most
	 *   {@link MAX_VIOLATIONS} violations, whose paths begin with the index of the event
	 */
	parse(conversationId: string, body: Buffer): ParsedEvents {
		return about(uuidOf(conversationId), (id) => this.#read(id, parseExactJson(body), []));
	}

	/**
	 * Reads the events of an encoded IngestConversationEventsRequest, as {@link parse} does.
	 *
	 * @throws ServiceError as `parse` does, and `invalid_argument` when it is no such message
	 */
	fromRequest(request: Uint8Array): ParsedEvents {
		const { conversationId, events } = decodeRequest(IngestConversationEventsRequestSchema, request);
		return about(uuidOf(conversationId), (id) => {
			const violations: Violation[] = [];
			let values = 0;
			let surrogates = false;
			const json = events.map((event, index) => {
				const envelope = this.#encodeEnvelope(event);
				if (!isJsonObject(envelope)) throw new TypeError("an event is an object");
				const members = readMembers(event.membersJson, [index, "members_json"], violations);
				if (members === undefined) return envelope;
				values += members.size.values;
				if (values > MAX_VALUES) throw tooManyValues();
				surrogates ||= members.surrogates;
				const misplaced = Object.keys(members.json).filter((name) =>
					this.#hasField(name, members.json[name], envelope),
				);
				for (const name of misplaced)
					violations.push({ path: [index, "members_json", name], ...valueError("this member has a field") });
				return misplaced.length > 0 ? envelope : { ...envelope, ...members.json };
			});
			return this.#read(id, { json, size: measureWithinBounds(json), surrogates }, violations);
		});
	}

	/**
	 * The JSON text of a stored event.
	 *
	 * @param form what becomes of its secrets, as for records: see `RecordVault.open`
	 * @throws ServiceError `data_loss` when what is stored is no event; for `plaintext` also when a secret cannot be
	 *   decrypted
	 */
	open(conversationId: string, { text, secrets, redactionVersion }: ProtectedEvent, form: SecretsForm): string {
		const stored = Buffer.from(text.buffer, text.byteOffset, text.byteLength).toString();
		// Who may see secrets in plain text may see those that an older release did not know.
		const isFoundByThese = redactionVersion === this.#secrets.version || form === "plaintext";
		if (isFoundByThese && (secrets.length === 0 || form === "encrypted")) return stored;
		const event = readStored(conversationId, stored);
		const cipher = this.#cipher.of(conversationId);
		for (const pointer of secrets) {
			const show = (ciphertext: string): Secret => {
				if (form === "encrypted") return ciphertext;
				return form === "redacted" ? REDACTED : cipher.decrypt(ciphertext, placeOf(event, pointer));
			};
			const isFound = replaceAt(event, parsePointer(pointer) ?? [], (value) => {
				const ciphertext = String(value);
				return hasUserinfo(ciphertext)
					? replaceUserinfo(ciphertext, (userinfo) => String(show(userinfo)))
					: show(ciphertext);
			});
			if (!isFound) throw unreadable(conversationId);
		}
		if (isFoundByThese) return stringifyExactJson(event);
		return this.#secrets.replace(event, true, (secret) =>
			form === "encrypted" && isCiphertext(String(secret)) ? secret : REDACTED,
		);
	}

	/** @param found what is known to be wrong */
	#read(conversationId: string, parsed: ParsedJson, found: readonly Violation[]): ParsedEvents {
		const receivedAt = BigInt(Date.now()) * 1000n;
		const clock = { timeZone: this.#timeZone, arrival: receivedAt, maxAhead: MAX_CLOCK_SKEW };
		const violations = [...found, ...judge(this.#schema, parsed)];
		const report = (path: Violation["path"], finding: Parameters<typeof violation>[1]): void => {
			violations.push(violation(path, finding, parsed.json, this.#schema.plan));
		};
		const envelopes = new Map<string, Envelope>();
		for (const [index, event] of Array.isArray(parsed.json) ? parsed.json.entries() : []) {
			if (violations.length >= MAX_VIOLATIONS) break;
			const [id, timestamp, source, kind] = ["id", "timestamp", "source", "kind"].map((name) => memberOf(event, name));
			if (typeof id !== "string" || typeof timestamp !== "string" || !isJsonObject(event)) continue;
			if (typeof source !== "string" || typeof kind !== "string") continue;
			const happenedAt = eventTime(timestamp, clock);
			if (id === "" || isLonger(id, MAX_EVENT_ID)) report([index, "id"], wrongLength(id, 1, MAX_EVENT_ID));
			else if (happenedAt === undefined) report([index, "timestamp"], NOT_A_DATE_TIME);
			else if (!envelopes.has(id)) envelopes.set(id, { event, id, source, kind, happenedAt });
		}
		if (violations.length > 0) throw brokenRules(violations.slice(0, MAX_VIOLATIONS), "the events", conversationId);
		const cipher = this.#encrypts ? this.#cipher.of(conversationId) : undefined;
		let count = 0;
		const hide = (secret: Secret, place: string): string => {
			count++;
			if (count > MAX_SECRETS) throw tooManySecrets(conversationId);
			return cipher === undefined ? REDACTED : cipher.encrypt(secret, place);
		};
		const read = [...envelopes.values()];
		const events = encoded(read.map((envelope) => this.#protect(envelope, parsed.size.large, hide)));
		return { batch: { conversationId, receivedAt, events, live: undefined }, json: read.map(({ event }) => event) };
	}

	/** @param hide gives what stands in place of a secret, for {@link placeOf} it */
	#protect(
		{ event, id, source, kind, happenedAt }: Envelope,
		bigints: boolean,
		hide: (secret: Secret, place: string) => string,
	): UnencodedEvent {
		const said = messageText(event);
		const shown = said && replaceUserinfo(said, () => REDACTED);
		const pointers = new Set<string>();
		const text = this.#secrets.replace(event, bigints, (secret, pointer) => {
			pointers.add(pointer);
			return hide(secret, placeOf(event, pointer));
		});
		return {
			eventId: id,
			happenedAt,
			kind,
			source,
			isLeaf: kind !== STATE_UPDATE,
			message: shown && beginning(shown, MAX_MESSAGE),
			text,
			secrets: this.#encrypts ? [...pointers] : [],
			redactionVersion: this.#secrets.version,
		};
	}

	/** Whether a member belongs into a field of the message and not into `members_json`. A null `parent_id` does not. */
	#hasField(name: string, member: ExactJson | undefined, envelope: ExactJsonObject): boolean {
		if (name === "parent_id" && member === null) return Object.hasOwn(envelope, name);
		return this.#envelope.has(name);
	}
}

/** What all events have, and the event. */
interface Envelope {
	readonly event: ExactJsonObject;
	readonly id: string;
	readonly source: string;
	readonly kind: string;
	readonly happenedAt: Microseconds;
}

/** An event whose text is not encoded. */
type UnencodedEvent = Omit<NewEvent, "text"> & { readonly text: string };

/** The events of a batch with their texts in UTF-8, in memory that they share and that the calls of threads can copy. */
function encoded(events: readonly UnencodedEvent[]): NewEvent[] {
	// Not from Node's pool, which holds other bytes.
	const bytes = UTF8.encode(events.map(({ text }) => text).join(""));
	let end = 0;
	return events.map((event) => {
		const start = end;
		end += Buffer.byteLength(event.text);
		return { ...event, text: bytes.subarray(start, end) };
	});
}

const UTF8 = new TextEncoder();

/**
 * An event's JSON text as a message.
 *
 * @param text what {@link EventFormat.open} gives
 */
export function toMessage(text: string): ConversationEvent {
	const event = create(ConversationEventSchema);
	const members: ExactJsonObject = {};
	const json = readExactJson(text);
	for (const [name, member] of isJsonObject(json) ? Object.entries(json) : []) {
		const property = PROPERTIES.get(name);
		if (property !== undefined && typeof member === "string") event[property] = member;
		else setMember(members, name, member);
	}
	event.membersJson = stringifyExactJson(members);
	return event;
}

/** Fields of an event's message by the names of its members. */
const PROPERTIES = new Map<string, "id" | "timestamp" | "source" | "kind" | "parentId">([
	["id", "id"],
	["timestamp", "timestamp"],
	["source", "source"],
	["kind", "kind"],
	["parent_id", "parentId"],
]);

/** The plans of a batch and of an event in it. */
function planBatch(): [batch: PlainPlan, event: PlainPlan] {
	const request = planMessage(IngestConversationEventsRequestSchema);
	const events = request.form === "object" ? request.members.get("events") : undefined;
	if (request.form !== "object" || events?.value.type !== "message" || events.value.message.form !== "object")
		throw new Error("a request has a list of events");
	return [{ ...request, form: "bare", fields: [events] }, events.value.message];
}

/** @throws ServiceError `invalid_argument` when a text is no UUID */
function uuidOf(text: string): string {
	const id = parseUuid(text);
	if (id === undefined) throw new ServiceError("invalid_argument", "conversation_id is not a UUID");
	return id;
}

/** What `read` gives; its errors tell which conversation they are about. */
function about<Result>(conversationId: string, read: (conversationId: string) => Result): Result {
	try {
		return read(conversationId);
	} catch (error) {
		throw error instanceof ServiceError ? error.with({ conversationId }) : error;
	}
}

/** Reads the other members of an event; undefined when they cannot be read, which is reported at `path`. */
function readMembers(text: string, path: Violation["path"], violations: Violation[]) {
	if (text === "") return undefined;
	try {
		const { json, size, surrogates } = parseExactJson(Buffer.from(text));
		if (isJsonObject(json)) return { json, size, surrogates };
		violations.push({ path, ...NOT_A_MAP });
	} catch (error) {
		if (!(error instanceof ServiceError)) throw error;
		violations.push(...error.violations.map((violation) => ({ ...violation, path: [...path, ...violation.path] })));
	}
	return undefined;
}

/** The place of a secret to which its ciphertext is bound. A record's place begins with a slash. */
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
