import { type GapOf, gapKey, LASTING_GAP } from "../store/gaps.ts";
import type { Store } from "../store/store.ts";
import type { Clock } from "./endpoint-worker.ts";
import type { Notices } from "./notices.ts";

/** Milliseconds between two looks at the gaps. */
const LOOK = 30_000;
/** Maximum number of gaps that are read at once. */
const PAGE = 10_000;

export interface GapNoticesOptions {
	readonly store: Pick<Store, "tables" | "getOrigin" | "listGaps">;
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
	{ store, notices, clock }: GapNoticesOptions,
	toldThrough: bigint | undefined,
	stopping: AbortSignal,
): Promise<bigint | undefined> {
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
		for (const gap of told) await tellGap(store, notices, gap);
		after = page.length < PAGE ? through : (told.at(-1)?.since ?? through);
	}
	return wanting.length === 0 ? undefined : after;
}

async function tellGap(
	store: Pick<Store, "getOrigin" | "listGaps">,
	notices: Pick<Notices, "tell">,
	gap: GapOf,
): Promise<void> {
	const { conversationId, kind, missing, after, since } = gap;
	const origin = await store.getOrigin(conversationId);
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
