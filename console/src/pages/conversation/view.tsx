import "./style.css";
import { useEffect, useMemo } from "preact/hooks";
import type { ConversationSummary } from "../../../../gen/conversations/v1/summary_pb.js";
import { full } from "../../parts/format.ts";
import { GapsTag } from "../../parts/gaps-tag.tsx";
import { Notice, ProblemNotice } from "../../parts/notice.tsx";
import { StatusMark } from "../../parts/status.tsx";
import { Ago, Clock } from "../../parts/time.tsx";
import { useShortcuts } from "../../shell/keys.ts";
import { addressOf, go, lastList, lastSearch, query, setQuery } from "../../shell/route.ts";
import { useTitle } from "../../shell/title.ts";
import { CopyMenu } from "./copy.tsx";
import { ExportMenu } from "./export.tsx";
import { Files } from "./files.tsx";
import { History } from "./history.tsx";
import { Missing } from "./missing.tsx";
import { GiveScores, ScoreCard } from "./score-card.tsx";
import { messageOf } from "./scores.ts";
import { OpenConversation } from "./state.ts";
import { Timeline } from "./timeline.tsx";
import { Tree } from "./tree.tsx";
import { UsageCharts } from "./usage-charts.tsx";

const TABS = { timeline: "Timeline", files: "Files", record: "Record", history: "History" } as const;
type Tab = keyof typeof TABS;
const TAB_NAMES: readonly Tab[] = ["timeline", "files", "record", "history"];

/** A conversation: what it is, what happened in it, its record and its history. */
export default function ConversationPage({ id }: { readonly id: string }) {
	const open = useMemo(() => new OpenConversation(id), [id]);
	useEffect(() => () => open.close(), [open]);
	const tab = TAB_NAMES.find((name) => name === query.value.get("tab")) ?? "timeline";
	const searched = query.value.get("query");
	const show = (name: Tab): void => setQuery((next) => next.set("tab", name));
	useShortcuts([
		{ key: "t", meaning: "show the timeline", run: () => show("timeline") },
		{ key: "i", meaning: "show the files", run: () => show("files") },
		{ key: "r", meaning: "show the record", run: () => show("record") },
		{ key: "h", meaning: "show the history", run: () => show("history") },
		searched === null
			? { key: "Escape", meaning: "back to the list", run: () => go(lastList.value ?? addressOf(["conversations"])) }
			: {
					key: "Escape",
					meaning: "back to the search",
					run: () => go(lastSearch.value ?? addressOf(["search"], { query: searched })),
				},
	]);
	const summary = open.summary.value;
	const record = open.record.value;
	const label = summary?.title ?? (summary?.firstMessage ? `“${summary.firstMessage}”` : id);
	useTitle(label);
	const missing = open.missing.value?.gaps ?? [];
	const [oldest] = missing;
	const tags = Object.entries(summary?.tags ?? {});
	const message = tab === "timeline" ? messageOf(open.stepAt(query.value.get("event"))) : undefined;
	const problem = open.problem.value;
	if (problem !== undefined) return <ProblemNotice problem={problem} retry={() => open.reload()} />;
	const isUnknown = (relation: string): boolean =>
		open.missing.value?.unknownRelations.some((unknown) => unknown.relation === relation) ?? false;
	if (summary === undefined && !open.hasSteps.value)
		return open.loading.value ? (
			<Notice title="Loading…" />
		) : (
			<Notice title="Not found">
				<span>The service has no conversation with the id {id}.</span>
			</Notice>
		);
	return (
		<>
			<header class="conversation-head">
				<h1>{label}</h1>
				<p class="row small muted">
					{summary && <StatusMark status={summary.executionStatus} />}
					<GapsTag gaps={oldest && { count: BigInt(missing.length), since: oldest.since }} />
					<span>{summary?.agentKind}</span>
					<span>{summary?.model}</span>
					{summary?.sender && <a href={addressOf(["conversations"], { sender: summary.sender })}>{summary.sender}</a>}
					<span>
						last activity <Ago time={summary?.lastActivityAt ?? summary?.updatedAt} />
					</span>
					<code>{id}</code>
					<CopyMenu open={open} />
					<ExportMenu open={open} label={label} />
					<GiveScores open={open} message={message} />
				</p>
			</header>
			<div class="conversation">
				<aside aria-label="Facts">
					<Missing open={open} />
					<section class="card">
						<h2>Facts</h2>
						<dl>
							<Fact name="Started">
								<Ago time={summary?.createdAt} />
							</Fact>
							{summary?.runStartedAt && (
								<Fact name="Last run">
									<Clock time={summary.runStartedAt} />
								</Fact>
							)}
							<Fact name="Events">{full(summary?.eventCount ?? 0n)}</Fact>
							{summary?.owner && <Fact name="Owner">{summary.owner}</Fact>}
							{tags.length > 0 && (
								<Fact name="Tags">
									{tags.map(([key, value]) => (
										<a key={key} class="tag" href={addressOf(["conversations"], { tag: `${key}:${value}` })}>
											{key}: {value}
										</a>
									))}
								</Fact>
							)}
							{summary?.parentConversationId && (
								<Fact name="Parent">
									<Relation id={summary.parentConversationId} unknown={isUnknown("parent")} />
								</Fact>
							)}
							{summary?.forkedFromConversationId && (
								<Fact name="Fork of">
									<Relation id={summary.forkedFromConversationId} unknown={isUnknown("source")} />
								</Fact>
							)}
							<Relatives name="Children" of={open.children.value} />
							<Relatives name="Forks" of={open.forks.value} />
						</dl>
					</section>
					<ScoreCard open={open} />
					{summary?.lastError && (
						<section class="card">
							<h2>Last error</h2>
							<a
								class="problem-text small"
								href={addressOf(["conversations", id], { event: String(summary.lastError.eventSequence) })}
							>
								{summary.lastError.code}
							</a>
							<p class="small muted">{summary.lastError.text}</p>
						</section>
					)}
				</aside>
				<section class="conversation-body">
					<div class="tabs" role="tablist">
						{TAB_NAMES.map((name) => (
							<button
								key={name}
								type="button"
								role="tab"
								aria-selected={name === tab}
								aria-controls="tab-panel"
								onClick={() => show(name)}
							>
								{TABS[name]} {name === "history" ? full(open.updates.value.length) : ""}
							</button>
						))}
					</div>
					<div role="tabpanel" id="tab-panel" aria-label={TABS[tab]}>
						{tab === "timeline" && <Timeline open={open} />}
						{tab === "files" && <Files open={open} />}
						{tab === "record" && <Tree value={record} name="record" />}
						{tab === "history" && <History open={open} />}
					</div>
				</section>
				<aside aria-label="Usage">
					<UsageCharts summary={summary} calls={open.attribution.value.calls} relatives={open.children.value} />
				</aside>
			</div>
		</>
	);
}

function Fact({ name, children }: { readonly name: string; readonly children: preact.ComponentChildren }) {
	return (
		<div>
			<dt>{name}</dt>
			<dd>{children}</dd>
		</div>
	);
}

function Relatives({ name, of }: { readonly name: string; readonly of: readonly ConversationSummary[] }) {
	if (of.length === 0) return null;
	return (
		<Fact name={name}>
			{of.map(({ id, title }) => (
				<a key={id} class="relative" href={addressOf(["conversations", id])}>
					{title ?? id}
				</a>
			))}
		</Fact>
	);
}

function Relation({ id, unknown }: { readonly id: string; readonly unknown: boolean }) {
	if (unknown)
		return (
			<span title="This service does not have the conversation, or your key may not see it">
				<code title={id}>{id.slice(0, 8)}</code> <span class="muted">is not known here</span>
			</span>
		);
	return <a href={addressOf(["conversations", id])}>{id.slice(0, 8)}</a>;
}
