import { randomBytes } from "node:crypto";
import { conditionsOf } from "../conversations/read/filter.ts";
import type { EndpointDelivery } from "../store/forwarding.ts";
import type { GivenScore } from "../store/scores.ts";
import type { Store } from "../store/store.ts";
import { filterOf } from "./endpoint-worker.ts";
import { dataOf, type Notices } from "./notices.ts";

interface ScoredOptions {
	readonly notices: Pick<Notices, "wanting">;
	/** Called when endpoints have something to deliver. */
	readonly onChange: () => void;
}

/** A score that callers change. One without a kind is deleted. */
type ChangedScore = Pick<GivenScore, "conversationId" | "eventId" | "name" | "giver"> &
	Partial<Pick<GivenScore, "kind" | "value" | "category">>;

const CHANGE = "SCORED";

/**
 * Returns a store that tells endpoints of the scores that callers give or delete. The transaction that changes the scores puts
 * the deliveries into the queues, one for each conversation of a batch whose scores differ from those before.
 */
export function tellingScores(store: Store, { notices, onChange }: ScoredOptions): Store {
	return {
		...store,
		async setScores(batch) {
			const deliveries = await deliveriesOf(batch.scores);
			const changed = await store.setScores({ ...batch, deliveries });
			if (deliveries.length > 0 && changed > 0) onChange();
			return changed;
		},
		async deleteScore(score) {
			const deliveries = await deliveriesOf([score]);
			const isDeleted = await store.deleteScore({ ...score, deliveries });
			if (deliveries.length > 0 && isDeleted) onChange();
			return isDeleted;
		},
	};

	/** Returns what the endpoints are told that want it and whose filters the conversations meet. */
	async function deliveriesOf(scores: readonly ChangedScore[]): Promise<EndpointDelivery[]> {
		const endpoints = await notices.wanting(CHANGE);
		const ofConversation = Map.groupBy(scores, ({ conversationId }) => conversationId);
		const ids = [...ofConversation.keys()];
		const batch = randomBytes(12).toString("hex");
		const deliveries: EndpointDelivery[] = [];
		for (const endpoint of endpoints) {
			const { id, owner } = endpoint;
			const owned = owner === "" ? [] : [{ kind: "equal", field: "owner", value: owner } as const];
			const conditions = [...conditionsOf(filterOf(endpoint)), ...owned, { kind: "ids", ids } as const];
			const found = await store.listConversations({ conditions, limit: ids.length, withRecords: false });
			for (const { conversationId, summary } of found) {
				const of = ofConversation.get(conversationId) ?? [];
				const text = of.some(({ kind }) => kind !== undefined) ? "was scored" : "lost a score";
				const told = { change: CHANGE, conversationId, text, data: { scores: of.map(shown) } } as const;
				const delivery = { change: CHANGE, conversationId, sequence: undefined, data: dataOf(told, { summary }) };
				deliveries.push({ endpoint: id, delivery: { ...delivery, id: `${id}_scored_${batch}_${conversationId}` } });
			}
		}
		return deliveries;
	}
}

function shown({ eventId, name, giver, kind, value = 0, category }: ChangedScore) {
	const plain = kind === "boolean" ? value === 1 : value;
	return { event_id: eventId || null, name, value: kind === undefined ? null : (category ?? plain), giver };
}
