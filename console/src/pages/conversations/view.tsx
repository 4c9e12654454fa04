import "./style.css";
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { ConversationExecutionStatus as Status } from "../../../../gen/conversations/v1/conversation_pb.js";
import { COMMON_RANGES, rangeWords } from "../../parts/days.ts";
import { CsvDownload, DownloadState } from "../../parts/download.tsx";
import { cost, full, short } from "../../parts/format.ts";
import { GapsTag } from "../../parts/gaps-tag.tsx";
import { loadedLater } from "../../parts/loaded-later.tsx";
import { Notice, ProblemLine, ProblemNotice } from "../../parts/notice.tsx";
import { PointAgentServer } from "../../parts/point-agent-server.tsx";
import { Reported } from "../../parts/reported.tsx";
import { ScoreValue, scoreNamed } from "../../parts/score.tsx";
import { ScoreNames } from "../../parts/score-names.tsx";
import { lookOf, StatusMark } from "../../parts/status.tsx";
import { Ago } from "../../parts/time.tsx";
import { VirtualList } from "../../parts/virtual-list.tsx";
import { useShortcuts } from "../../shell/keys.ts";
import { addressOf, go, query, replaceQuery, setQuery } from "../../shell/route.ts";
import { useTitle } from "../../shell/title.ts";
import { ChosenBar } from "./chosen.tsx";
import {
	apiParametersOf,
	FILTER_WORDS,
	faultOf,
	gapsQuery,
	hasButton,
	hasFilters,
	isGapsView,
	isSilentView,
	LIST_FILTERS,
	MOST_COLUMNS,
	ORDERS,
	orderScoreOf,
	STATUSES,
	scoreColumnsOf,
	silentQuery,
	withoutFilters,
	withoutStatus,
	wordsOf,
} from "./filter.ts";
import { SavedViews } from "./saved-views.tsx";
import { type Counts, labelOf, listOf, type Row } from "./state.ts";
import { Suggestions } from "./suggestions.tsx";

/** What a conversation waits for. It reads events, with code that lists need for nothing else. */
const WaitsFor = loadedLater<{ readonly id: string; readonly eventCount: bigint }>(
	() => import("../conversation/waits-for.tsx"),
	{ waiting: null, failed: () => null },
);

/** Windows in which a row has three lines. */
const NARROW = "(width < 560px)";

/** The live list of conversations. */
export default function ConversationsPage() {
	useTitle(undefined);
	const parameters = query.value.toString();
	const list = useMemo(() => listOf(parameters), [parameters]);
	useEffect(() => () => list.close(), [list]);
	useLayoutEffect(() => {
		scrollTo(0, list.scrolled);
		const keep = (): void => {
			list.scrolled = scrollY;
		};
		addEventListener("scroll", keep, { passive: true });
		return () => removeEventListener("scroll", keep);
	}, [list]);
	const search = useRef<HTMLInputElement>(null);
	const csv = useMemo(() => new CsvDownload(), []);
	const download = (): Promise<void> => {
		const asked = apiParametersOf(query.value, Date.now());
		asked.set("page_size", "1000");
		return csv.save("api/v1/conversations", asked, "conversations");
	};
	const picked = list.picked.value;
	const rows = list.rows.value;
	const stale = list.stale.value;
	const chosen = list.chosen.value;
	const move = (by: number): void => {
		// Rows move while the list changes, so the conversation is remembered and not its place.
		const present = rows.findIndex(({ summary }) => summary.id === chosen?.id);
		const index = Math.min(Math.max(present + by, 0), rows.length - 1);
		const row = rows[index];
		if (row !== undefined) list.chosen.value = { id: row.summary.id, index };
	};
	useShortcuts([
		{ key: "j", meaning: "next conversation", run: () => move(1) },
		{ key: "k", meaning: "previous conversation", run: () => move(-1) },
		{
			key: "Enter",
			meaning: "open the chosen conversation",
			run: () => {
				const row = rows.find(({ summary }) => summary.id === chosen?.id);
				if (row !== undefined) go(addressOfRow(row));
			},
		},
		{
			key: "x",
			meaning: "choose the conversation for a comparison or an erasure, or no longer",
			run: () => {
				const row = rows.find(({ summary }) => summary.id === chosen?.id);
				if (row !== undefined) list.pick([row], !list.picked.value.has(row.summary.id));
			},
		},
		{ key: "c", meaning: "download the list as CSV", run: () => void download() },
		{ key: "f", meaning: "filter by title", run: () => search.current?.focus() },
		{ key: "Escape", meaning: "remove all filters", run: () => clearFilters(search.current) },
	]);
	const problem = list.problem.value;
	const columns = scoreColumnsOf(query.value);
	return (
		<>
			<h1 class="visually-hidden">Conversations</h1>
			<StatusButtons counts={list.counts.value} />
			<Filters input={search} orders={new Map([...ORDERS, ...scoreOrders(query.value)])}>
				<ScoreNames
					label="Scores"
					title="Scores that are shown as columns"
					names={columns}
					most={MOST_COLUMNS}
					onChange={(names) =>
						setQuery((next) => {
							next.delete("score_name");
							for (const name of names) next.append("score_name", name);
						})
					}
				/>
				<SavedViews />
				<button type="button" onClick={() => void download()}>
					CSV <kbd>c</kbd>
				</button>
			</Filters>
			<DownloadState csv={csv} />
			{problem !== undefined && (stale || rows.length === 0) ? (
				<ProblemNotice problem={problem} retry={() => list.reload()} />
			) : rows.length === 0 ? (
				<EmptyList loading={list.loading.value} />
			) : (
				<>
					<div
						class={`list${stale ? " stale" : ""}${columns.length > 0 ? " scored" : ""}`}
						role="table"
						aria-label="Conversations"
						aria-rowcount={rows.length + 1}
						aria-busy={stale}
					>
						<Head scores={columns}>
							<Pick
								label="Choose all that are loaded"
								isPicked={rows.every(({ summary }) => picked.has(summary.id))}
								onPick={(isPicked) => list.pick(rows, isPicked)}
							/>
						</Head>
						<VirtualList
							role="rowgroup"
							items={rows}
							estimate={matchMedia(NARROW).matches ? 78 : 56}
							keyOf={({ summary }) => summary.id}
							render={(row) => (
								<Line row={row} chosen={row.summary.id === chosen?.id} scores={columns}>
									<Pick
										label={`Choose ${labelOf(row.summary)}`}
										isPicked={picked.has(row.summary.id)}
										onPick={(isPicked) => list.pick([row], isPicked)}
									/>
								</Line>
							)}
							onEnd={() => void list.loadMore()}
							focus={chosen?.index}
							scrolled={list.scrolled}
						/>
					</div>
					<p class="row small muted" aria-live="polite">
						{problem === undefined ? (
							<span>{list.loading.value ? "Loading…" : `${full(rows.length)} of ${totalOf(list)}`}</span>
						) : (
							<ProblemLine problem={problem} retry={() => void list.loadMore()} />
						)}
					</p>
				</>
			)}
			{picked.size > 0 && <ChosenBar list={list} />}
		</>
	);
}

/** Returns the orders by scores that are offered: those of the columns and the present one. */
function scoreOrders(parameters: URLSearchParams): readonly (readonly [string, { readonly words: string }])[] {
	const names = new Set([...scoreColumnsOf(parameters), orderScoreOf(parameters)].filter(Boolean));
	return [...names].map((name) => [`${BY_SCORE}${name}`, { words: `score ${name}` }]);
}

/** What stands before the name of a score in the choice of the order. */
const BY_SCORE = "score:";

interface HeadProps {
	/** Names of the scores that are columns. Default: none. */
	readonly scores?: readonly string[];
	readonly children?: ComponentChildren;
}

/** The names of the columns of {@link Line}, with a box before the first one if the rows have some. */
export function Head({ scores = [], children }: HeadProps) {
	return (
		<div class="line head" role="row">
			{["Status", "Conversation", "Agent", "Cost", "Tokens", "Activity", "Sender"].map((title, index) => (
				<span key={title} role="columnheader">
					{index === 0 && children}
					{title}
				</span>
			))}
			{scores.map((name) => (
				<span key={name} role="columnheader" class="score" title={`Score ${name}`}>
					{name}
				</span>
			))}
		</div>
	);
}

interface PickProps {
	readonly label: string;
	readonly isPicked: boolean;
	readonly onPick: (isPicked: boolean) => void;
}

/** A box that chooses conversations to do something with. */
function Pick({ label, isPicked, onPick }: PickProps) {
	return (
		<label class="pick">
			<input
				type="checkbox"
				aria-label={label}
				checked={isPicked}
				onChange={(event) => onPick(event.currentTarget.checked)}
			/>
		</label>
	);
}

function totalOf(list: ReturnType<typeof listOf>): string {
	const loaded = list.rows.value.length;
	if (!list.more.value) return full(loaded);
	return full(Math.max(Number(list.counts.value?.shown ?? 0n), loaded));
}

function clearFilters(search: HTMLInputElement | null): void {
	search?.blur();
	replaceQuery(withoutFilters(query.value));
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

interface FiltersProps {
	readonly input: { current: HTMLInputElement | null };
	/** Orders by their names in the address, the first one being the default; undefined if there is nothing to order. */
	readonly orders?: ReadonlyMap<string, { readonly words: string }>;
	/** Whether a parameter of the address is no filter, or is shown by something else, such as a pressed button. */
	readonly isShownElsewhere?: (name: string, value: string) => boolean;
	readonly children?: ComponentChildren;
}

/** Whether the box of the search, the choice of the order, or a button shows a parameter. */
function isShownAbove(name: string, value: string): boolean {
	return ["query", "order_by", "order_score", "score_name", "zone"].includes(name) || hasButton(name, value);
}

/** The filters of the address besides those that are shown elsewhere, and its order. */
export function Filters({ input, orders, isShownElsewhere = isShownAbove, children }: FiltersProps) {
	const parameters = query.value;
	const suggested = useSignal(false);
	const [firstOrder] = orders?.keys() ?? [];
	const orderScore = orderScoreOf(parameters);
	const active = [...parameters].filter(([name, value]) => !isShownElsewhere(name, value));
	const apply = (): void => {
		const text = input.current?.value.trim() ?? "";
		const [, name = "", value] = /^(\w+):\s*(.*)$/.exec(text) ?? [];
		const fault = value === undefined ? undefined : faultOf(name, value);
		if (fault !== undefined) {
			input.current?.setCustomValidity(fault);
			input.current?.reportValidity();
			return;
		}
		setQuery((next) => {
			if (value !== undefined && LIST_FILTERS.has(name)) next.append(name, value);
			else if (value !== undefined && FILTER_WORDS.has(name)) next.set(name, value);
			else if (text === "") next.delete("title_contains");
			else next.set("title_contains", text);
		});
		if (input.current !== null) input.current.value = "";
	};
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
					apply();
				}}
			>
				<input
					ref={input}
					class="search"
					type="search"
					aria-label="Filter: words of the title, or model:NAME, sender:NAME, agent_kind:NAME, tag:KEY:VALUE, score:NAME:VALUE"
					placeholder="Filter by title, or model:…  created:yesterday  tag:key:value   ( f )"
					list="filters"
					onFocus={() => {
						suggested.value = true;
					}}
					onBlur={() => {
						suggested.value = false;
					}}
					onInput={(event) => {
						event.currentTarget.setCustomValidity("");
						// A suggestion was chosen.
						if (event.inputType === "insertReplacementText") apply();
					}}
				/>
				<Suggestions id="filters" wanted={suggested.value} />
			</form>
			{active.map(([name, value]) => (
				<button key={`${name}:${value}`} type="button" title="Remove this filter" onClick={() => without(name, value)}>
					{FILTER_WORDS.get(name) ?? name}: {wordsOf(name, value)} <span aria-hidden="true">×</span>
				</button>
			))}
			{orders && <ActiveChoice />}
			{orders && (
				<label class="row small muted">
					Order
					<select
						value={orderScore === "" ? (parameters.get("order_by") ?? firstOrder) : `${BY_SCORE}${orderScore}`}
						onChange={(event) => {
							const { value } = event.currentTarget;
							setQuery((next) => {
								const isByScore = value.startsWith(BY_SCORE);
								next.set("order_by", isByScore ? "score" : value);
								if (isByScore) next.set("order_score", value.slice(BY_SCORE.length));
								else next.delete("order_score");
							});
						}}
					>
						{[...orders].map(([name, { words }]) => (
							<option key={name} value={name}>
								{words}
							</option>
						))}
					</select>
				</label>
			)}
			{children}
		</div>
	);
}

/** Chooses conversations by the days on which they were active last. */
function ActiveChoice() {
	const present = query.value.get("activity") ?? "";
	return (
		<label class="row small muted">
			Active
			<select
				value={COMMON_RANGES.includes(present) ? present : ""}
				onChange={(event) => {
					const { value } = event.currentTarget;
					setQuery((next) => {
						if (value === "") next.delete("activity");
						else next.set("activity", value);
					});
				}}
			>
				<option value="">at any time</option>
				{COMMON_RANGES.map((range) => (
					<option key={range} value={range}>
						{rangeWords(range)}
					</option>
				))}
			</select>
		</label>
	);
}

function EmptyList({ loading }: { readonly loading: boolean }) {
	if (loading) return <Notice title="Loading…" />;
	return hasFilters(query.value) ? (
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

function hasFailed({ summary }: Row): boolean {
	return summary.lastError !== undefined && [Status.ERROR, Status.STUCK].includes(summary.executionStatus);
}

/** Returns the address of a conversation: of its last error if it has failed. */
function addressOfRow(row: Row): string {
	const { id, lastError } = row.summary;
	const event = hasFailed(row) ? { event: String(lastError?.eventSequence) } : {};
	return addressOf(["conversations", id], event);
}

// A click beside the link of a row, on what says more on hover, acts as one on the link, with the same keys held.
addEventListener("click", (event) => {
	const { target } = event;
	if (!(target instanceof Element) || target.closest("a, button, input, label") !== null) return;
	target.closest(".list .line")?.querySelector(".label > a")?.dispatchEvent(new MouseEvent("click", event));
});

interface LineProps {
	readonly row: Row;
	readonly chosen: boolean;
	/** Names of the scores that are columns. Default: none. */
	readonly scores?: readonly string[];
	/** What is shown in place of the conversation's label. */
	readonly label?: ComponentChildren;
	/** What stands before the status. */
	readonly children?: ComponentChildren;
}

/** One conversation: its label, and the reason for its status where one is known. */
export function Line({ row, chosen, scores = [], label: shown, children }: LineProps) {
	const { summary, fresh } = row;
	const { title, firstMessage, lastMessage, lastError, tokens } = summary;
	const failed = lastError !== undefined && hasFailed(row);
	return (
		<div class={`line${chosen ? " chosen" : ""}${fresh ? " fresh" : ""}`} role="row" aria-selected={chosen}>
			<span role="cell">
				{children}
				<StatusMark status={summary.executionStatus} />
			</span>
			<span role="cell" class="label">
				<a href={addressOfRow(row)}>{shown ?? (row.unreadable ? "cannot be read" : labelOf(summary))}</a>
				<span class="reason small">
					<GapsTag gaps={summary.gaps} />
					{summary.executionStatus === Status.WAITING_FOR_CONFIRMATION && (
						<WaitsFor id={summary.id} eventCount={summary.eventCount} />
					)}
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
							{(title !== undefined || lastMessage !== firstMessage) && <span class="muted">{lastMessage}</span>}
						</>
					)}
				</span>
			</span>
			<span role="cell">
				{summary.agentKind}
				<span class="small muted model">{summary.model}</span>
			</span>
			<span role="cell" class="number">
				<Reported value={summary.accumulatedCost} format={cost} />
			</span>
			<span
				role="cell"
				class="number"
				title={tokens && `${full(tokens.promptTokens)} prompt, ${full(tokens.completionTokens)} completion`}
			>
				<Reported value={tokens && tokens.promptTokens + tokens.completionTokens} format={short} />
			</span>
			<span role="cell" class="number">
				<Ago time={summary.lastActivityAt ?? summary.updatedAt} />
			</span>
			<span role="cell" class="sender">
				{summary.sender}
			</span>
			{scores.map((name) => (
				<span key={name} role="cell" class="score" data-name={name}>
					<ScoreValue name={name} value={scoreNamed(row.scores, name)} />
				</span>
			))}
		</div>
	);
}
