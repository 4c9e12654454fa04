import { create, type DescField, type DescMessage } from "@bufbuild/protobuf";
import { LRUCache } from "lru-cache";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import {
	type ConversationUpdate,
	ConversationUpdateSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import type { ConversationSummary } from "../../../gen/conversations/v1/summary_pb.js";
import {
	UpdateChange,
	UpdateChangeSchema,
	type UpdateOrigin,
	UpdateOriginSchema,
} from "../../../gen/conversations/v1/update_pb.js";
import { stringifyExactJson } from "../../record/json/exact-json.ts";
import { type Fields, isFields, sameTree } from "../../record/json/json-value.ts";
import { formatDateTime, fromMicroseconds } from "../../record/json/scalars.ts";
import { planEnum } from "../../record/plan.ts";
import type { RecordFormat } from "../../record/record-format.ts";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import type { StoredUpdate } from "../../store/entries.ts";
import type { Store } from "../../store/store.ts";
import { type LogPage, type LogPageRequest, readLogPage, updateLog } from "./entry-log.ts";
import { originOf } from "./filter.ts";
import { MAX_PAGE_BYTES } from "./page.ts";
import {
	decodeSummary,
	encodeSummary,
	openComparable,
	type RecordOpening,
	recordSize,
	storedRecord,
	tryRead,
} from "./records.ts";

export interface UpdatesRequest extends LogPageRequest, UpdateViewOptions {
	/** Only updates of this origin. UNSPECIFIED means the same as undefined. */
	readonly origin?: UpdateOrigin | undefined;
}

/** Maximum bytes of records that are read for a page without records. Comparing them takes memory and time. */
const MAX_READ_BYTES = 8 * 1024 * 1024;

/** Lists the updates of one conversation or of all, oldest first, as {@link readLogPage} reads them. */
export async function listUpdates(
	store: Pick<Store, "updates">,
	views: UpdateViews,
	request: UpdatesRequest,
): Promise<LogPage<ConversationUpdate>> {
	const { full } = request;
	return await readLogPage(updateLog(store), request, {
		filter: { origin: originOf(request.origin) },
		maxReadBytes: full ? MAX_PAGE_BYTES : MAX_READ_BYTES,
		toView: (stored) => views.toUpdate(stored, request),
		sizeOf: (update, { record }) => sizeOf(update) + (full ? recordSize(record) : 0),
	});
}

/** Returns the bytes of the fields beside the record that have no limit of their own. */
function sizeOf({ summary, changedFields }: ConversationUpdate): number {
	const texts = [summary?.title ?? "", summary?.model ?? "", ...Object.entries(summary?.tags ?? {}).flat()];
	return [...texts, ...(changedFields?.paths ?? [])].reduce((sum, text) => sum + Buffer.byteLength(text), 0);
}

/**
 * Finds the fields in which two messages of one type differ.
 *
 * @returns paths of proto field names as in google.protobuf.FieldMask, in the order of the descriptors. No path leads
 *   below another one. Paths lead into a message that both sides have. A list, a map, a well-known type and a message
 *   that only one side has are reported as a whole.
 */
export function diffMessages(desc: DescMessage, before: object, after: object): string[] {
	if (!isFields(before) || !isFields(after)) return [];
	return desc.fields.flatMap((field) => {
		const [a, b] = [fieldValue(field, before), fieldValue(field, after)];
		// A well-known type, such as Timestamp or Struct, is compared as a whole.
		const isOwn = field.fieldKind === "message" && !field.message.typeName.startsWith("google.protobuf.");
		if (isOwn && isFields(a) && isFields(b))
			return diffMessages(field.message, a, b).map((path) => `${field.name}.${path}`);
		return sameTree(a, b) ? [] : [field.name];
	});
}

/** Returns the value of a field of a generated message. An arm that is not set has none. */
function fieldValue({ localName, oneof }: DescField, message: Fields): unknown {
	if (oneof === undefined) return message[localName];
	const selected = message[oneof.localName];
	return isFields(selected) && selected.case === localName ? selected.value : undefined;
}

export interface UpdateViewOptions {
	readonly full: boolean;
	readonly secrets: SecretsForm;
	/** Whether the changed fields include secrets; for callers with the scope `secrets` only. */
	readonly secretPaths: boolean;
}

/** Maximum encoded bytes of the records whose views are cached, and of the records cached for comparison. */
const MAX_CACHED_BYTES = 4 * 1024 * 1024;
/** Bytes that a view without its record counts as in the cache. */
const SUMMARY_BYTES = 2048;

/** Returns the size of a cache entry. The cache would refuse an entry that is larger than its maximum size. */
const cacheSize = (bytes: number): { size: number } => ({ size: Math.min(bytes, MAX_CACHED_BYTES) });

const CHANGES = planEnum(UpdateChangeSchema).byNumber;
const ORIGINS = planEnum(UpdateOriginSchema).byNumber;

const LEAF = ConversationInfoSchema.field.leafEventId.name;

/**
 * Returns the views of the updates that are read from now on. Once stored updates have changed, these are other ones, so
 * that nothing that was read before is in the cache of what is read later.
 */
export type PresentViews = () => UpdateViews;

/**
 * Builds the views of stored updates that readers receive. Views are cached for a while, so that many watchers of an
 * update share one computation. They must not be changed.
 */
export class UpdateViews {
	readonly #store: Pick<Store, "get">;
	readonly #opening: RecordOpening;
	readonly #views = new LRUCache<string, Promise<ConversationUpdate>>({ maxSize: MAX_CACHED_BYTES });
	/** Records for comparison with the next update of their conversation. */
	readonly #comparableRecords = new LRUCache<string, ConversationInfo>({ maxSize: MAX_CACHED_BYTES });

	constructor(store: Pick<Store, "get">, opening: RecordOpening) {
		this.#store = store;
		this.#opening = opening;
	}

	/**
	 * Returns the view of an update that was read with its record. It is marked as unreadable when the stored update cannot
	 * be read. Rejects when the store cannot be read for the previous record.
	 */
	toUpdate(stored: StoredUpdate, options: UpdateViewOptions): Promise<ConversationUpdate> {
		if (stored.change === UpdateChange.ERASED)
			return Promise.resolve(create(ConversationUpdateSchema, metadataOf(stored)));
		const { full, secrets, secretPaths } = options;
		// A view without the record does not depend on how secrets are shown.
		const key = `${stored.sequence} ${stored.owner ?? ""} ${full ? secrets : "summary"} ${secretPaths}`;
		const cached = this.#views.get(key);
		if (cached !== undefined) return cached;
		const view = full ? this.#full(stored, options) : this.#summary(stored, secretPaths);
		this.#views.set(key, view, cacheSize(SUMMARY_BYTES + (full ? recordSize(stored.record) : 0)));
		view.catch(() => this.#views.delete(key));
		return view;
	}

	toJson(update: ConversationUpdate): string {
		return updateJson(update, this.#opening.format);
	}

	async #full(stored: StoredUpdate, options: UpdateViewOptions): Promise<ConversationUpdate> {
		const summary = await this.toUpdate(stored, { ...options, full: false });
		if (summary.unreadable) return summary;
		const { bytes } = storedRecord(stored);
		const conversation = tryRead(stored, this.#opening.onUnreadable, () =>
			this.#opening.vault.open(bytes, options.secrets),
		);
		return conversation === undefined ? unreadable(stored) : { ...summary, conversation };
	}

	async #summary(stored: StoredUpdate, secretPaths: boolean): Promise<ConversationUpdate> {
		const read = tryRead(stored, this.#opening.onUnreadable, () => ({
			summary: decodeSummary(stored.summary),
			record: this.#comparableRecord(stored, secretPaths),
		}));
		if (read === undefined) return unreadable(stored);
		const before = await this.#recordBefore(stored, secretPaths);
		return create(ConversationUpdateSchema, {
			...metadataOf(stored),
			summary: read.summary,
			changedFields: before && {
				paths: changedPaths(diffMessages(ConversationInfoSchema, before, read.record), read.summary),
			},
		});
	}

	/** Returns the record that was current before; undefined when there was none, or it was pruned or is unreadable. */
	async #recordBefore(
		{ conversationId, previousSequence }: StoredUpdate,
		secretPaths: boolean,
	): Promise<ConversationInfo | undefined> {
		if (previousSequence === undefined) return undefined;
		const cached = this.#comparableRecords.get(comparableKey(previousSequence, secretPaths));
		if (cached !== undefined) return cached;
		const found = await this.#store.get(conversationId, previousSequence);
		// The update with that sequence may have been pruned.
		if (found?.sequence !== previousSequence) return undefined;
		return tryRead(found, this.#opening.onUnreadable, () => this.#comparableRecord(found, secretPaths));
	}

	#comparableRecord(stored: StoredUpdate, secretPaths: boolean): ConversationInfo {
		const key = comparableKey(stored.sequence, secretPaths);
		const cached = this.#comparableRecords.get(key);
		if (cached !== undefined) return cached;
		const { bytes } = storedRecord(stored);
		const record = openComparable(this.#opening.vault, bytes, secretPaths);
		this.#comparableRecords.set(key, record, cacheSize(bytes.byteLength + 1));
		return record;
	}
}

/**
 * Returns the paths that are shown as changed, of those in which two records differ. Once a conversation has events, they
 * set its leaf without an update, so that a leaf that differs from that of the update before need not be a change.
 */
function changedPaths(paths: readonly string[], { eventCount }: Pick<ConversationSummary, "eventCount">): string[] {
	return paths.filter((path) => eventCount === 0n || path !== LEAF);
}

function comparableKey(sequence: bigint, secretPaths: boolean): string {
	return `${sequence} ${secretPaths}`;
}

function metadataOf({ receivedAt, sender = "", ...stored }: StoredUpdate) {
	const { sequence, conversationId, change, current, origin } = stored;
	return { sequence, conversationId, change, current, origin, sender, receivedAt: fromMicroseconds(receivedAt) };
}

function unreadable(stored: StoredUpdate): ConversationUpdate {
	return create(ConversationUpdateSchema, { ...metadataOf(stored), unreadable: true });
}

/**
 * Returns the view of an update as JSON text: names as in the .proto files, times and enums as in records, and the record
 * in the webhook's form.
 */
export function updateJson(view: ConversationUpdate, format: Pick<RecordFormat, "toJson">): string {
	const { sequence, conversationId, change, current, origin, sender, receivedAt, changedFields, summary } = view;
	return stringifyExactJson({
		sequence,
		conversation_id: conversationId,
		change: CHANGES.get(change) ?? null,
		current,
		received_at: receivedAt === undefined ? null : formatDateTime(receivedAt),
		...(changedFields === undefined ? {} : { changed_fields: changedFields.paths }),
		...(summary === undefined ? {} : { summary: encodeSummary(summary) }),
		...(view.unreadable ? { unreadable: true } : {}),
		origin: ORIGINS.get(origin) ?? null,
		sender,
		...(view.conversation === undefined ? {} : { conversation: format.toJson(view.conversation) }),
	});
}
