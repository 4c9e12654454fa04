import type { ConversationGaps } from "../../../gen/conversations/v1/summary_pb.js";
import { ago, exactTime, full } from "./format.ts";
import { dateOf, now } from "./time.tsx";

/** Milliseconds for which a gap is no reason to worry: a record is often posted before the events of its moment. */
const NORMAL = 60_000;

/** Says how much is missing of a conversation, and since when. */
export function GapsTag({ gaps }: { readonly gaps: Pick<ConversationGaps, "count" | "since"> | undefined }) {
	if (gaps?.since === undefined) return null;
	const since = dateOf(gaps.since);
	const lasts = now.value - since.getTime() >= NORMAL;
	return (
		<span class={`tag ${lasts ? "waiting" : "muted"}`} title={`The oldest was noticed at ${exactTime(since)}`}>
			<span aria-hidden="true">▲</span> {full(gaps.count)} {gaps.count === 1n ? "gap" : "gaps"}, {ago(since, now.value)}
		</span>
	);
}
