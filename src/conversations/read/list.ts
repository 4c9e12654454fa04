import { create } from "@bufbuild/protobuf";
import type { ConversationInfo } from "../../../gen/conversations/v1/conversation_pb.js";
import type { ConversationFilter } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import type { RecordVault } from "../../record/secrets/record-vault.ts";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import type { Condition } from "../../store/condition.ts";
import type { Store, StoredConversation } from "../../store/store.ts";
import { conditionsOf } from "./filter.ts";
import { MAX_PAGE_BYTES, pageSize } from "./page.ts";
import { readPageToken, writePageToken } from "./page-token.ts";
import { type OnUnreadable, recordSize, storedRecord, tryRead } from "./record-opener.ts";
import { decodeSummary } from "./stored-summary.ts";

/** Which conversations are requested, and how they are shown. */
export interface ListRequest {
	/** 0 means the default size. */
	readonly pageSize: number;
	/** Empty for the first page. */
	readonly pageToken: string;
	readonly filter?: ConversationFilter | undefined;
	/** Whether whole records are returned with the summaries. */
	readonly full: boolean;
	readonly secrets: SecretsForm;
}

/** A conversation in a list. */
export interface ListedConversation {
	/** Sequence of the current update. */
	readonly sequence: bigint;
	readonly summary: ConversationSummary;
	readonly conversation: ConversationInfo | undefined;
	/** Whether the stored conversation cannot be read. Its summary then holds the id only. */
	readonly unreadable: boolean;
}

/** A page of conversations. */
export interface ConversationPage {
	readonly conversations: readonly ListedConversation[];
	/** Empty on the last page. */
	readonly nextPageToken: string;
}

const LIST = "conversations";
/** Number of conversations in the first read of whole records. The sizes of these records determine the next number. */
const FIRST_READ = 8;
/** Maximum number of conversations that the store returns at once. */
const MAX_READ = 1000;

/** Lists conversations, newest current update first. */
export class ListConversations {
	readonly #store: Pick<Store, "listConversations">;
	readonly #vault: RecordVault;
	readonly #onUnreadable: OnUnreadable;

	constructor(store: Pick<Store, "listConversations">, vault: RecordVault, onUnreadable: OnUnreadable) {
		this.#store = store;
		this.#vault = vault;
		this.#onUnreadable = onUnreadable;
	}

	/**
	 * Returns a page. It ends before its entries exceed {@link MAX_PAGE_BYTES}, but has at least one if there is one.
	 *
	 * @param filterPrefix text before the name of a field in errors about the filter
	 * @throws ServiceError `invalid_argument` that names the field, or `unavailable` when the store cannot be read
	 */
	async list(request: ListRequest, filterPrefix = "filter."): Promise<ConversationPage> {
		const { pageToken, full, secrets } = request;
		const size = pageSize(request.pageSize);
		const conditions = conditionsOf(request.filter, filterPrefix);
		const before = pageToken === "" ? undefined : readPageToken(LIST, { conditions }, pageToken);
		const { found, more } = await this.#read(conditions, before, size, full);
		const last = found.at(-1);
		return {
			conversations: found.map((stored) => this.#entry(stored, full, secrets)),
			nextPageToken: more && last !== undefined ? writePageToken(LIST, { conditions }, last.sequence) : "",
		};
	}

	#entry(stored: StoredConversation, full: boolean, secrets: SecretsForm): ListedConversation {
		const { conversationId, sequence } = stored;
		const entry = tryRead(stored, this.#onUnreadable, () => ({
			summary: decodeSummary(stored.summary),
			conversation: full ? this.#vault.open(storedRecord(stored).bytes, secrets) : undefined,
		}));
		if (entry !== undefined) return { sequence, ...entry, unreadable: false };
		const summary = create(ConversationSummarySchema, { id: conversationId });
		return { sequence, summary, conversation: undefined, unreadable: true };
	}

	/** Reads a page in portions, so that no more large records than needed are in memory. */
	async #read(
		conditions: readonly Condition[],
		start: bigint | undefined,
		size: number,
		withRecords: boolean,
	): Promise<{ found: readonly StoredConversation[]; more: boolean }> {
		const found: StoredConversation[] = [];
		let bytes = 0;
		let portion = withRecords ? FIRST_READ : MAX_READ;
		for (;;) {
			// One more than fits on the page, to find out whether another page follows.
			const limit = Math.min(portion, size + 1 - found.length);
			const before = found.at(-1)?.sequence ?? start;
			const read = await this.#store.listConversations({ conditions, before, limit, withRecords });
			for (const stored of read) {
				bytes += sizeOf(stored);
				if (found.length === size || (found.length > 0 && bytes > MAX_PAGE_BYTES)) return { found, more: true };
				found.push(stored);
			}
			if (read.length < limit) return { found, more: false };
			const average = bytes / found.length;
			portion = Math.max(1, Math.min(MAX_READ, Math.ceil((MAX_PAGE_BYTES - bytes) / average)));
		}
	}
}

function sizeOf({ summary, record }: StoredConversation): number {
	return summary.byteLength + recordSize(record);
}
