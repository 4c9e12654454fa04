import type { Condition } from "../../store/condition.ts";
import type { SequenceLog } from "../../store/sequence-log.ts";
import type { Store } from "../../store/store.ts";

/** The reads of the store, and the erasure of what can be read. */
export type StoreReads = Pick<
	Store,
	| "get"
	| "readEvents"
	| "listConversations"
	| "countConversations"
	| "updates"
	| "events"
	| "readIndexProgress"
	| "findDocuments"
	| "reportUsage"
	| "getUsageRange"
	| "listUsedPeriods"
	| "listSenders"
	| "listRefusedPosts"
	| "getRefusedPost"
	| "getOwnership"
	| "listGaps"
	| "setScores"
	| "deleteScore"
	| "listScores"
	| "listScoreValues"
	| "reportScores"
	| "erase"
	| "purge"
>;

/**
 * Returns the reads of the store, limited to the conversations of an owner. For every other conversation they return what
 * they return for one that does not exist. This is the only place that decides who may see what.
 *
 * @param owner undefined for a caller that sees everything
 */
export function visibleStore(store: StoreReads, owner: string | undefined): StoreReads {
	if (owner === undefined) return store;
	const owned = <Query extends { readonly conditions: readonly Condition[] }>(query: Query) => ({
		...query,
		conditions: [{ kind: "equal", field: "owner", value: owner } as const, ...query.conditions],
	});
	const getOwnership: StoreReads["getOwnership"] = async (conversationId) => {
		const ownership = await store.getOwnership(conversationId);
		return ownership?.owner === owner ? ownership : undefined;
	};
	return {
		get: (conversationId, asOf) => store.get(conversationId, asOf, owner),
		readEvents: async (sequences) => (await store.readEvents(sequences)).filter((event) => event.owner === owner),
		listConversations: (query) => store.listConversations(owned(query)),
		countConversations: (query) => store.countConversations(owned(query)),
		readIndexProgress: () => store.readIndexProgress(),
		findDocuments: (query, signal) => store.findDocuments(owned(query), signal),
		reportUsage: (query) => store.reportUsage({ ...query, owner }),
		getUsageRange: () => store.getUsageRange(owner),
		listUsedPeriods: (query) => store.listUsedPeriods({ ...query, owner }),
		listSenders: () => store.listSenders(owner),
		listRefusedPosts: (query) => store.listRefusedPosts({ ...query, owner }),
		getRefusedPost: ({ id }) => store.getRefusedPost({ id, owner }),
		getOwnership,
		async listGaps(conversationId) {
			const [ownership, gaps] = await Promise.all([store.getOwnership(conversationId), store.listGaps(conversationId)]);
			if (ownership !== undefined) return ownership.owner === owner ? gaps : [];
			// Nothing of the conversation is stored but refused batches that were accepted. They are their senders'.
			return gaps.filter((gap) => gap.owner === owner);
		},
		setScores: (batch) => store.setScores({ ...batch, owner }),
		deleteScore: (of) => store.deleteScore({ ...of, owner }),
		listScores: async (query) =>
			(await getOwnership(query.conversationId)) === undefined ? [] : await store.listScores(query),
		// Of conversations that a list has returned.
		listScoreValues: (query) => store.listScoreValues(query),
		reportScores: (query) => store.reportScores(owned(query)),
		erase: (request) => store.erase({ ...request, owner }),
		purge: () => store.purge(),
		updates: visibleLog(store.updates, owner),
		events: visibleLog(store.events, owner),
	};
}

function visibleLog<Entry, Query extends object>(
	log: SequenceLog<Entry, Query>,
	owner: string,
): SequenceLog<Entry, Query> {
	return {
		list: (query) => log.list({ ...query, owner }),
		range: (query) => log.range({ ...query, owner }),
		subscribe: (listener) => log.subscribe(listener),
	};
}
