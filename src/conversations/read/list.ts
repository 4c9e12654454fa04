import { fromBinary } from "@bufbuild/protobuf";
import type { ConversationInfo } from "../../../gen/conversations/v1/conversation_pb.js";
import type { ConversationFilter } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import type { RecordVault } from "../../record/secrets/record-vault.ts";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import type { Store, StoredConversation, ConversationFilter as StoreFilter } from "../../store/store.ts";
import { toStoreFilter } from "./filter.ts";
import { MAX_PAGE_BYTES, pageSize } from "./page.ts";
import type { PageTokens } from "./page-token.ts";

/** Which conversations are asked for, and how they are shown. */
export interface ListRequest {
	/** 0 is the default size. */
	readonly pageSize: number;
	/** Empty for the first page. */
	readonly pageToken: string;
	readonly filter: ConversationFilter | undefined;
	/** Whether whole records are given beside the summaries. */
	readonly full: boolean;
	readonly secrets: SecretsForm;
}

/** A conversation in a list. */
export interface ListedConversation {
	/** Sequence of the current update. */
	readonly sequence: bigint;
	readonly summary: ConversationSummary;
	readonly conversation: ConversationInfo | undefined;
}

/** A page of conversations. */
export interface ConversationPage {
	readonly conversations: readonly ListedConversation[];
	/** Empty on the last page. */
	readonly nextPageToken: string;
}

const LIST = "conversations";
/** Conversations of the first read of whole records; later ones follow from the size that records turned out to have. */
const FIRST_READ = 8;
/** Most conversations that the store gives at once. */
const MAX_READ = 1000;

/** Lists conversations, the one with the newest current update first. */
export class ListConversations {
	readonly #store: Store;
	readonly #vault: RecordVault;
	readonly #tokens: PageTokens;

	constructor(store: Store, vault: RecordVault, tokens: PageTokens) {
		this.#store = store;
		this.#vault = vault;
		this.#tokens = tokens;
	}

	/**
	 * A page. It ends before its entries exceed {@link MAX_PAGE_BYTES}, but has at least one.
	 *
	 * @param filterPrefix what stands before a field's name in an error about the filter
	 * @throws ServiceError `invalid_argument` that names the field, `unavailable` when the store cannot be read, or
	 *   `data_loss` when secrets cannot be decrypted
	 */
	async list(request: ListRequest, filterPrefix = "filter."): Promise<ConversationPage> {
		const { pageToken, full, secrets } = request;
		const size = pageSize(request.pageSize);
		const filter = toStoreFilter(request.filter, filterPrefix);
		const before = pageToken === "" ? undefined : this.#tokens.read(LIST, { ...filter }, pageToken);
		const { found, more } = await this.#read(filter, before, size, full);
		const last = found.at(-1);
		return {
			conversations: found.map(({ sequence, summary, record }) => ({
				sequence,
				summary: fromBinary(ConversationSummarySchema, summary),
				conversation: record && this.#vault.open(record, secrets),
			})),
			nextPageToken: more && last !== undefined ? this.#tokens.write(LIST, { ...filter }, last.sequence) : "",
		};
	}

	/** Reads a page in portions, so that no more than needed of large records is in memory. */
	async #read(
		filter: StoreFilter,
		start: bigint | undefined,
		size: number,
		withRecords: boolean,
	): Promise<{ found: readonly StoredConversation[]; more: boolean }> {
		const found: StoredConversation[] = [];
		let bytes = 0;
		let portion = withRecords ? FIRST_READ : MAX_READ;
		for (;;) {
			// One more than the page takes tells whether another page follows.
			const limit = Math.min(portion, size + 1 - found.length);
			const before = found.at(-1)?.sequence ?? start;
			const read = await this.#store.listConversations({ filter, before, limit, withRecords });
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
	return summary.byteLength + (record?.byteLength ?? 0);
}
