import { durationMs } from "@bufbuild/protobuf/wkt";
import type { Sender } from "../../../../gen/conversations/v1/conversation_sender_service_pb.js";
import { ColumnHeads } from "../../parts/column-heads.tsx";
import { duration, full } from "../../parts/format.ts";
import { Notice, ProblemNotice } from "../../parts/notice.tsx";
import { Ago } from "../../parts/time.tsx";
import { usePolled } from "../../service/polled.ts";
import { senders } from "../../service/service.ts";
import { addressOf } from "../../shell/route.ts";
import { useTitle } from "../../shell/title.ts";
import { RefusedPosts } from "./refused.tsx";

/** Milliseconds between two reads of the senders. */
const INTERVAL = 5_000;

const COLUMNS = [
	"Sender",
	"Last post",
	"State",
	"Running",
	"Records",
	"Events",
	"Clock",
	"Refused in an hour",
	"Refused in a day",
] as const;
/** Columns of numbers. */
const NUMBERS: ReadonlySet<string> = new Set(["Running", "Records", "Events"]);

/** Who posts, who is silent, whose clock is wrong, and whose posts are refused. */
export default function SendersPage() {
	useTitle("Senders");
	const { list, problem } = usePolled(async () => (await senders.listSenders({})).senders, INTERVAL);
	if (problem.value !== undefined) return <ProblemNotice problem={problem.value} />;
	if (list.value === undefined) return <Notice title="Loading…" />;
	if (list.value.length === 0)
		return (
			<>
				<Notice title="Nobody has posted yet">
					<span>
						<a href={addressOf(["about"])}>About</a> says how to point an agent server at this service.
					</span>
				</Notice>
				<RefusedPosts interval={INTERVAL} />
			</>
		);
	return (
		<>
			<h1 class="visually-hidden">Senders</h1>
			<div class="scroll" role="region" aria-label="Senders" tabIndex={0}>
				<table class="card wide">
					<ColumnHeads titles={COLUMNS} numbers={NUMBERS} />
					<tbody>
						{list.value.map((sender) => (
							<Line key={sender.name} sender={sender} />
						))}
					</tbody>
				</table>
			</div>
			<RefusedPosts interval={INTERVAL} />
		</>
	);
}

function Line({ sender }: { readonly sender: Sender }) {
	// A key whose posts were all refused, for example because it may only read, is listed too.
	const hasPosted = sender.lastPostAt !== undefined;
	const skew = sender.clockSkew === undefined ? undefined : durationMs(sender.clockSkew);
	return (
		<tr>
			<td>
				{hasPosted ? (
					<a href={addressOf(["conversations"], { sender: sender.name })}>{sender.name}</a>
				) : (
					<span>{sender.name}</span>
				)}{" "}
				{sender.owner !== "" && <span class="tag">{sender.owner}</span>}
			</td>
			<td>
				<Ago time={sender.lastPostAt} />
			</td>
			<td class="status">
				{sender.silent ? (
					<span class="error">✕ silent</span>
				) : hasPosted ? (
					<span class="finished">✓ posts</span>
				) : (
					<span class="muted">nothing accepted</span>
				)}
			</td>
			<td class="number">{full(sender.runningConversations)}</td>
			<td class="number">{full(sender.records)}</td>
			<td class="number">{full(sender.events)}</td>
			<td>
				{skew === undefined ? (
					<span class="muted">not known yet</span>
				) : skew === 0 ? (
					<span class="finished">✓ right</span>
				) : (
					<span class="error">
						✕ {duration(Math.abs(skew))} {skew > 0 ? "behind" : "ahead"}: set its time zone
					</span>
				)}
			</td>
			<td>
				<Refusals counts={sender.refusalsLastHour} />
			</td>
			<td>
				<Refusals counts={sender.refusalsLastDay} />
			</td>
		</tr>
	);
}

function Refusals({ counts }: { readonly counts: Readonly<Record<string, bigint>> }) {
	const kinds = Object.entries(counts);
	if (kinds.length === 0) return <span class="muted">none</span>;
	return (
		<>
			{kinds.map(([kind, count]) => (
				<span key={kind} class="tag">
					{kind} {full(count)}
				</span>
			))}
		</>
	);
}
