import { createHash } from "node:crypto";
import { conditionsOf } from "../conversations/read/filter.ts";
import { encodeSummary } from "../conversations/read/records.ts";
import { stringifyExactJson } from "../record/json/exact-json.ts";
import type { ExactJson } from "../record/json/json-value.ts";
import { meetingQuery, type StoredConversation } from "../store/conversation-lists.ts";
import type { EndpointRow } from "../store/forwarding.ts";
import { type GapOf, gapKey, LASTING_GAP } from "../store/gaps.ts";
import type { Store } from "../store/store.ts";
import { type Clock, filterOf } from "./endpoint-worker.ts";
import { type NoticeChange, summaryOf } from "./tell.ts";

/** Something to tell endpoints that has no update. */
export interface Notice {
	readonly change: NoticeChange;
	/** Identifies what is told. The same words are told once, over restarts and replicas. */
	readonly about: readonly string[];
	/** Empty for what concerns no single conversation. */
	readonly conversationId: string;
	/** Whom it concerns. Endpoints of other owners are not told; if it is undefined, only those without an owner are. */
	readonly owner: string | undefined;
	/** What a chat is told: the end of a sentence about the conversation, or a sentence if there is no conversation. */
	readonly text: string;
	/** Members of the data of a delivery, beside `change`, `conversation_id`, `text` and `summary`. No secrets. */
	readonly data: Readonly<Record<string, ExactJson>>;
}

interface NoticesOptions {
	readonly store: Pick<Store, "tables" | "listConversations" | "getErasure">;
	readonly clock: Pick<Clock, "now">;
	/** Called when endpoints have something to deliver. */
	readonly onChange: () => void;
}

export type Notices = ReturnType<typeof noticesOf>;

/** Tells endpoints what has no update. It is put between what is in their queues. */
export function noticesOf({ store, clock, onChange }: NoticesOptions) {
	return { wanting, wasTold, tell };

	/** Returns the endpoints of a process or another that want a change. */
	async function wanting(change: NoticeChange): Promise<readonly EndpointRow[]> {
		const all = await store.tables.read.listEndpoints({ owner: undefined });
		return all.filter(({ changes }) => changes.includes(change));
	}

	/** Whether something was told, or could have been told to an endpoint. */
	async function wasTold(notice: Pick<Notice, "change" | "about">): Promise<boolean> {
		return await store.tables.read.hasNotice(idOf(notice));
	}

	/**
	 * Tells the endpoints that want it. If it concerns a conversation, this must meet their filters. An endpoint that wants
	 * it later is not told.
	 *
	 * @returns whether it was told for the first time; false also when it was told to no endpoint then
	 */
	async function tell({ change, about, conversationId, owner, text, data }: Notice): Promise<boolean> {
		if (await wasTold({ change, about })) return false;
		const endpoints = (await wanting(change)).filter((one) => one.owner === "" || one.owner === owner);
		const meant: EndpointRow[] = [];
		for (const endpoint of endpoints) if (await meets(endpoint, conversationId)) meant.push(endpoint);
		const id = idOf({ change, about });
		const [found] =
			conversationId === "" || meant.length === 0
				? []
				: await store.listConversations(meetingQuery(conversationId, []));
		const told = dataOf({ change, conversationId, text, data }, found);
		const delivery = { change, conversationId, sequence: undefined, data: told };
		const at = BigInt(clock.now()) * 1000n;
		const isNew = await store.tables.write.addNotice({
			...{ id, conversationId, at },
			deliveries: meant.map(({ id: endpoint }) => ({ endpoint, delivery: { ...delivery, id: `${endpoint}_${id}` } })),
		});
		// An erasure meanwhile has not seen it.
		if (conversationId !== "" && (await store.getErasure(conversationId)) !== undefined)
			await store.tables.write.clearDeliveries({ conversationId, at });
		if (isNew && meant.length > 0) onChange();
		return isNew;
	}

	async function meets(endpoint: EndpointRow, conversationId: string): Promise<boolean> {
		const conditions = conditionsOf(filterOf(endpoint));
		if (conversationId === "" || conditions.length === 0) return true;
		const query = meetingQuery(conversationId, conditions);
		return (await store.listConversations(query)).length > 0;
	}
}

/** Returns the data of a delivery that has no update, as JSON text. `found` is its conversation. */
export function dataOf(
	{ change, conversationId, text, data }: Omit<Notice, "about" | "owner">,
	found: Pick<StoredConversation, "summary"> | undefined,
): string {
	const summary = found && summaryOf(found);
	return stringifyExactJson({
		change: change.toLowerCase(),
		...(conversationId === "" ? {} : { conversation_id: conversationId }),
		...{ text, ...data },
		...(conversationId === "" ? {} : { summary: summary === undefined ? null : encodeSummary(summary) }),
	});
}

function idOf({ change, about }: Pick<Notice, "change" | "about">): string {
	const hash = createHash("sha256").update(JSON.stringify([change, ...about]));
	return `${change.toLowerCase()}_${hash.digest("hex").slice(0, 32)}`;
}

const LOOK = 30_000;
const PAGE = 10_000;

interface GapNoticesOptions {
	readonly store: Pick<Store, "tables" | "getOwnership" | "listGaps">;
	readonly notices: Pick<Notices, "tell" | "wanting">;
	readonly clock: Clock;
	readonly onError: (error: unknown) => void;
}

/** Tells endpoints of gaps that have lasted for {@link LASTING_GAP}, each once. Every process looks. */
export async function noticeGaps(options: GapNoticesOptions, stopping: AbortSignal): Promise<void> {
	const { clock, onError } = options;
	/** The gaps that were noticed through this time were told. */
	let through: bigint | undefined;
	while (!stopping.aborted) {
		try {
			through = await tellLasting(options, through, stopping);
		} catch (error) {
			onError(error);
		}
		await clock.wait(LOOK, stopping);
	}
}

async function tellLasting(
	options: GapNoticesOptions,
	toldThrough: bigint | undefined,
	stopping: AbortSignal,
): Promise<bigint | undefined> {
	const { store, notices, clock } = options;
	const wanting = await notices.wanting("GAP");
	const lasting = BigInt(LASTING_GAP) * 1000n;
	const now = BigInt(clock.now()) * 1000n;
	const [oldest = now] = wanting.map(({ createdAt }) => createdAt).sort((a, b) => (a < b ? -1 : 1));
	// What lasted before there was an endpoint is not told.
	let after = toldThrough ?? oldest - lasting;
	const through = now - lasting;
	while (wanting.length > 0 && after < through && !stopping.aborted) {
		const page = await store.tables.read.listOpenedGaps({ after, through, limit: PAGE });
		const last = page.at(-1);
		// A full page may lack others of its last time.
		const whole = page.length < PAGE || last === undefined ? page : page.filter(({ since }) => since < last.since);
		const told = whole.length === 0 ? page : whole;
		for (const gap of told) await tellGap(options, gap);
		after = page.length < PAGE ? through : (told.at(-1)?.since ?? through);
	}
	return wanting.length === 0 ? undefined : after;
}

async function tellGap({ store, notices }: GapNoticesOptions, gap: GapOf): Promise<void> {
	const { conversationId, kind, missing, after, since } = gap;
	const origin = await store.getOwnership(conversationId);
	// Nothing of the conversation is stored but refused batches that were accepted. They are their senders'.
	const own = origin ?? (await store.listGaps(conversationId)).find((one) => gapKey(one) === gapKey(gap));
	const isRefused = kind === "refused_batch";
	await notices.tell({
		change: "GAP",
		about: [conversationId, gapKey(gap), String(since)],
		conversationId,
		owner: own?.owner,
		text: isRefused ? "a batch of events was refused" : "something is missing",
		data: {
			gap: {
				kind,
				since: new Date(Number(since / 1000n)).toISOString(),
				after_event_id: after ?? null,
				missing_event_id: kind === "missing_parent" || kind === "missing_leaf" ? missing : null,
				refused_post_id: isRefused ? missing : null,
			},
		},
	});
}
