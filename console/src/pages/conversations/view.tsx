import "./style.css";
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { ConversationExecutionStatus as Status } from "../../../../gen/conversations/v1/conversation_pb.js";
import { cost, full, short } from "../../parts/format.ts";
import { GapsTag } from "../../parts/gaps-tag.tsx";
import { Notice, ProblemNotice } from "../../parts/notice.tsx";
import { PointAgentServer } from "../../parts/point-agent-server.tsx";
import { lookOf, StatusMark } from "../../parts/status.tsx";
import { Ago } from "../../parts/time.tsx";
import { VirtualList } from "../../parts/virtual-list.tsx";
import { useShortcuts } from "../../shell/keys.ts";
import { addressOf, go, query, replaceQuery, setQuery } from "../../shell/route.ts";
import {
	gapsQuery,
	isGapsView,
	isSilentView,
	ORDERS,
	STATUSES,
	silentQuery,
	type TEXT_FILTERS,
	withoutStatus,
} from "./filter.ts";
import { SavedViews } from "./saved-views.tsx";
import { ConversationList, type Counts, type Row } from "./state.ts";

/** The live list of conversations. */
export default function ConversationsPage() {
	const parameters = query.value.toString();
	const list = useMemo(() => new ConversationList(new URLSearchParams(parameters)), [parameters]);
	useEffect(() => () => list.close(), [list]);
	const chosen = useSignal<number | undefined>(undefined);
	const search = useRef<HTMLInputElement>(null);
	const rows = list.rows.value;
	const move = (by: number): void => {
		const next = Math.min(Math.max((chosen.value ?? -1) + by, 0), rows.length - 1);
		if (rows.length > 0) chosen.value = next;
	};
	useShortcuts([
		{ key: "j", meaning: "next conversation", run: () => move(1) },
		{ key: "k", meaning: "previous conversation", run: () => move(-1) },
		{
			key: "Enter",
			meaning: "open the chosen conversation",
			run: () => {
				const row = rows[chosen.value ?? -1];
				if (row !== undefined) go(addressOf(["conversations", row.summary.id]));
			},
		},
		{ key: "f", meaning: "filter by title", run: () => search.current?.focus() },
		{ key: "Escape", meaning: "remove all filters", run: () => clearFilters(search.current) },
	]);
	const problem = list.problem.value;
	return (
		<>
			<h1 class="visually-hidden">Conversations</h1>
			<StatusButtons counts={list.counts.value} />
			<Filters input={search} orders={ORDERS}>
				<SavedViews />
			</Filters>
			{problem !== undefined ? (
				<ProblemNotice problem={problem} retry={() => list.reload()} />
			) : rows.length === 0 ? (
				<EmptyList loading={list.loading.value} />
			) : (
				<>
					<div class="list" role="table" aria-label="Conversations" aria-rowcount={rows.length + 1}>
						<Head />
						<VirtualList
							role="rowgroup"
							items={rows}
							estimate={56}
							keyOf={({ summary }) => summary.id}
							render={(row, index) => <Line row={row} chosen={index === chosen.value} />}
							onEnd={() => void list.loadMore()}
							focus={chosen.value}
						/>
					</div>
					<p class="small muted" aria-live="polite">
						{list.loading.value ? "Loading more…" : `${full(rows.length)} of ${totalOf(list)}`}
					</p>
				</>
			)}
		</>
	);
}

/** The names of the columns of {@link Line}. */
export function Head() {
	return (
		<div class="line head" role="row">
			{["Status", "Conversation", "Agent", "Cost", "Tokens", "Activity", "Sender"].map((title) => (
				<span key={title} role="columnheader">
					{title}
				</span>
			))}
		</div>
	);
}

function totalOf(list: ConversationList): string {
	const loaded = list.rows.value.length;
	if (!list.more.value) return full(loaded);
	return full(Math.max(Number(list.counts.value?.shown ?? 0n), loaded));
}

function clearFilters(search: HTMLInputElement | null): void {
	search?.blur();
	setQuery((parameters) => {
		for (const name of [...parameters.keys()]) if (name !== "order_by") parameters.delete(name);
	});
}

/** The statuses as buttons that filter by them, with the numbers of conversations if they are known. */
export function StatusButtons({ counts }: { readonly counts?: Counts | undefined }) {
	const parameters = query.value;
	const chosen = parameters.getAll("execution_status");
	const silent = isSilentView(parameters);
	const gaps = isGapsView(parameters);
	const choose = (status: string | undefined): void => {
		const next = withoutStatus(parameters);
		if (status !== undefined) next.append("execution_status", status);
		replaceQuery(next);
	};
	return (
		<fieldset class="row statuses" aria-label="Status">
			<button type="button" aria-pressed={chosen.length === 0 && !silent && !gaps} onClick={() => choose(undefined)}>
				all {counts && <strong>{full(counts.all)}</strong>}
			</button>
			{[...STATUSES].map(([name, status]) => {
				const { word, glyph } = lookOf(status);
				return (
					<button
						key={name}
						type="button"
						class={word}
						aria-pressed={!silent && chosen.includes(name)}
						onClick={() => choose(name)}
					>
						<span aria-hidden="true">{glyph}</span> {word}{" "}
						{counts && <strong>{full(counts.byStatus.get(name) ?? 0n)}</strong>}
					</button>
				);
			})}
			<button
				type="button"
				aria-pressed={silent}
				title="Running or waiting, and without activity for ten minutes"
				onClick={() => replaceQuery(silentQuery(parameters))}
			>
				silent for 10 min {counts && <strong>{full(counts.silent)}</strong>}
			</button>
			<button
				type="button"
				aria-pressed={gaps}
				title="Something that an agent server should have posted is missing"
				onClick={() => replaceQuery(gapsQuery(parameters))}
			>
				has gaps {counts && <strong>{full(counts.gaps)}</strong>}
			</button>
		</fieldset>
	);
}

const FILTER_WORDS: Readonly<Record<(typeof TEXT_FILTERS)[number], string>> = {
	model: "Model",
	agent_kind: "Agent",
	sender: "Sender",
	owner: "Owner",
	tag_key: "Tag key",
	title_contains: "Title",
};

interface FiltersProps {
	readonly input: { current: HTMLInputElement | null };
	/** Orders by their names in the address. The first one is the default. */
	readonly orders: ReadonlyMap<string, { readonly words: string }>;
	readonly children?: ComponentChildren;
}

/** The filters of the address besides that of the status, and its order. */
export function Filters({ input, orders, children }: FiltersProps) {
	const parameters = query.value;
	const [firstOrder] = orders.keys();
	// The others are shown by a pressed button, by the choice of the order, or by the box of the search.
	const active = [...parameters].filter(
		([name, value]) =>
			!["query", "order_by", "execution_status", "silent_minutes"].includes(name) &&
			!(name === "has_gaps" && value === "true"),
	);
	const without = (name: string, value: string): void =>
		setQuery((next) => {
			const rest = next.getAll(name).filter((one) => one !== value);
			next.delete(name);
			for (const one of rest) next.append(name, one);
		});
	return (
		<div class="row filters">
			<form
				class="grow"
				onSubmit={(event) => {
					event.preventDefault();
					const text = input.current?.value.trim() ?? "";
					setQuery((next) => {
						const [, name, value] = /^(\w+):\s*(.*)$/.exec(text) ?? [];
						if (name === "tag" && value !== undefined) next.append("tag", value);
						else if (name !== undefined && value !== undefined && Object.hasOwn(FILTER_WORDS, name))
							next.set(name, value);
						else if (text === "") next.delete("title_contains");
						else next.set("title_contains", text);
					});
					if (input.current !== null) input.current.value = "";
				}}
			>
				<input
					ref={input}
					class="search"
					type="search"
					aria-label="Filter: words of the title, or model:NAME, sender:NAME, agent_kind:NAME, tag:KEY:VALUE"
					placeholder="Filter by title, or model:…  sender:…  tag:key:value   ( f )"
				/>
			</form>
			{active.map(([name, value]) => (
				<button key={`${name}:${value}`} type="button" title="Remove this filter" onClick={() => without(name, value)}>
					{name}: {value} <span aria-hidden="true">×</span>
				</button>
			))}
			<label class="row small muted">
				Order
				<select
					value={parameters.get("order_by") ?? firstOrder}
					onChange={(event) => {
						const { value } = event.currentTarget;
						setQuery((next) => next.set("order_by", value));
					}}
				>
					{[...orders].map(([name, { words }]) => (
						<option key={name} value={name}>
							{words}
						</option>
					))}
				</select>
			</label>
			{children}
		</div>
	);
}

function EmptyList({ loading }: { readonly loading: boolean }) {
	if (loading) return <Notice title="Loading…" />;
	const filtered = [...query.value.keys()].some((name) => name !== "order_by");
	return filtered ? (
		<Notice title="No conversation matches">
			<button type="button" onClick={() => clearFilters(null)}>
				Remove all filters
			</button>
		</Notice>
	) : (
		<div class="first">
			<Notice title="No conversation yet">
				<span>This list fills by itself with the first post of an agent server.</span>
			</Notice>
			<PointAgentServer />
		</div>
	);
}

interface LineProps {
	readonly row: Row;
	readonly chosen: boolean;
	/** What is shown in place of the conversation's label. */
	readonly label?: ComponentChildren;
}

/** One conversation: its label, and the reason for its status where one is known. */
export function Line({ row, chosen, label: shown }: LineProps) {
	const { summary, fresh } = row;
	const { title, firstMessage, lastMessage, lastError, tokens } = summary;
	const failed = lastError !== undefined && [Status.ERROR, Status.STUCK].includes(summary.executionStatus);
	const address = addressOf(["conversations", summary.id], failed ? { event: String(lastError.eventSequence) } : {});
	const label = title ?? (firstMessage === undefined ? undefined : `“${firstMessage}”`);
	return (
		<div class={`line${chosen ? " chosen" : ""}${fresh ? " fresh" : ""}`} role="row" aria-selected={chosen}>
			<span role="cell">
				<StatusMark status={summary.executionStatus} />
			</span>
			<span role="cell" class="label">
				<a href={address}>{shown ?? (row.unreadable ? "cannot be read" : (label ?? summary.id))}</a>
				<span class="reason small">
					<GapsTag gaps={summary.gaps} />
					{failed ? (
						<span class="problem-text">
							{lastError.code}: {lastError.text}
							{lastError.retryable === true ? " · a retry is possible" : ""}
						</span>
					) : (
						<>
							{Object.entries(summary.tags).map(([key, value]) => (
								<span key={key} class="tag">
									{key}: {value}
								</span>
							))}
							<span class="muted">{lastMessage}</span>
						</>
					)}
				</span>
			</span>
			<span role="cell">
				{summary.agentKind}
				<span class="small muted model">{summary.model}</span>
			</span>
			<span role="cell" class="number">
				{cost(summary.accumulatedCost)}
			</span>
			<span
				role="cell"
				class="number"
				title={`${full(tokens?.promptTokens ?? 0n)} prompt, ${full(tokens?.completionTokens ?? 0n)} completion`}
			>
				{short((tokens?.promptTokens ?? 0n) + (tokens?.completionTokens ?? 0n))}
			</span>
			<span role="cell" class="number">
				<Ago time={summary.lastActivityAt ?? summary.updatedAt} />
			</span>
			<span role="cell" class="sender">
				{summary.sender}
			</span>
		</div>
	);
}
