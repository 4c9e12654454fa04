import {
	type ConversationGap,
	ConversationGapKind as Kind,
} from "../../../../gen/conversations/v1/conversation_gap_service_pb.js";
import { full } from "../../parts/format.ts";
import { Ago } from "../../parts/time.tsx";
import { addressOf } from "../../shell/route.ts";
import type { OpenConversation } from "./state.ts";

/** What is missing, in the words of the console. */
const WORDS: Readonly<Record<Kind, string>> = {
	[Kind.UNSPECIFIED]: "Something is missing",
	[Kind.MISSING_PARENT]: "An event is missing",
	[Kind.MISSING_LEAF]: "The last event is missing",
	[Kind.NO_RECORD]: "No record was posted",
	[Kind.REFUSED_BATCH]: "Events were refused",
};

/** Number of gaps that are listed at first. */
const SHOWN = 20;

/** The gaps of a conversation, the oldest first. Shows nothing while there are none. */
export function Missing({ open }: { readonly open: OpenConversation }) {
	const missing = open.missing.value;
	if (missing === undefined || missing.gaps.length === 0) return null;
	const { gaps, nextPageToken } = missing;
	const rest = gaps.slice(SHOWN);
	return (
		<section class="card missing" aria-labelledby="missing">
			<h2 id="missing">
				<span class="waiting" aria-hidden="true">
					▲
				</span>{" "}
				Gaps: {full(gaps.length)}
				{nextPageToken === "" ? "" : " and more"}
			</h2>
			<ol>
				{gaps.slice(0, SHOWN).map((gap) => (
					<Gap key={keyOf(gap)} gap={gap} open={open} />
				))}
			</ol>
			{rest.length > 0 && (
				<details>
					<summary>{full(rest.length)} more</summary>
					<ol>
						{rest.map((gap) => (
							<Gap key={keyOf(gap)} gap={gap} open={open} />
						))}
					</ol>
				</details>
			)}
		</section>
	);
}

function keyOf({ kind, missingEventId, refusedPostId }: ConversationGap): string {
	return `${kind} ${missingEventId} ${refusedPostId}`;
}

function Gap({ gap, open }: { readonly gap: ConversationGap; readonly open: OpenConversation }) {
	const { kind, afterEventId, missingEventId, refusedPostId, since } = gap;
	const place = open.gapPlaces.value.get(gap);
	return (
		<li>
			<span>{WORDS[kind] ?? WORDS[Kind.UNSPECIFIED]}</span>{" "}
			<span class="small muted">
				· noticed <Ago time={since} />
			</span>
			<p class="small muted">
				{kind === Kind.NO_RECORD && "What is shown comes from events, and lacks what only records have. "}
				{refusedPostId !== "" && <a href={addressOf(["senders"])}>why it was refused</a>}
				{missingEventId !== "" && (
					<>
						id <ShortId id={missingEventId} />
					</>
				)}
				{afterEventId !== "" && (
					<>
						{" "}
						after <ShortId id={afterEventId} />
					</>
				)}{" "}
				{place && (
					<a href={addressOf(["conversations", open.id], { event: String(place.step.sequence) })}>show the place</a>
				)}
			</p>
		</li>
	);
}

/** Stands in the timeline where an event is missing. */
export function GapMark({ gap }: { readonly gap: ConversationGap }) {
	return (
		<p class="gap-mark small">
			<span aria-hidden="true">▲</span> {WORDS[gap.kind]} here: <ShortId id={gap.missingEventId} />, noticed{" "}
			<Ago time={gap.since} />
		</p>
	);
}

function ShortId({ id }: { readonly id: string }) {
	return (
		<code class="short-id" title={id}>
			{id.length > 13 ? `${id.slice(0, 12)}…` : id}
		</code>
	);
}
