import "./style.css";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import {
	SearchField,
	type SearchHit,
	type SearchPlace,
} from "../../../../gen/conversations/v1/conversation_search_service_pb.js";
import type { ConversationSummary } from "../../../../gen/conversations/v1/summary_pb.js";
import { full } from "../../parts/format.ts";
import { Notice, ProblemNotice } from "../../parts/notice.tsx";
import { useShortcuts } from "../../shell/keys.ts";
import { addressOf, go, query, replaceQuery } from "../../shell/route.ts";
import { searchedAgain } from "../../shell/search-box.tsx";
import { useTitle } from "../../shell/title.ts";
import { hasFilters, withoutFilters } from "../conversations/filter.ts";
import { Filters, Head, Line, StatusButtons } from "../conversations/view.tsx";
import { ORDERS, type Reach, resultsOf, type SearchResults } from "./state.ts";

/** The hits of the search that the address has. */
export default function SearchPage() {
	const parameters = query.value.toString();
	const searched = query.value.get("query");
	useTitle(searched === null ? "Search" : `Search: ${searched}`);
	const again = searchedAgain.value;
	const results = useMemo(() => resultsOf(parameters, again), [parameters, again]);
	const { chosen } = results;
	useLayoutEffect(() => {
		scrollTo(0, results.scrolled);
		const keep = (): void => {
			results.scrolled = scrollY;
		};
		addEventListener("scroll", keep, { passive: true });
		return () => removeEventListener("scroll", keep);
	}, [results]);
	const filter = useRef<HTMLInputElement>(null);
	const table = useRef<HTMLDivElement>(null);
	const links = (): HTMLAnchorElement[] => [...(table.current?.querySelectorAll("a") ?? [])];
	const move = (by: number): void => {
		const all = links();
		const next = Math.min(Math.max(chosen.value + by, 0), all.length - 1);
		if (all.length === 0) return;
		chosen.value = next;
		all[next]?.scrollIntoView({ block: "nearest" });
	};
	useShortcuts([
		{ key: "j", meaning: "next hit or place", run: () => move(1) },
		{ key: "k", meaning: "previous hit or place", run: () => move(-1) },
		{ key: "Enter", meaning: "open the chosen hit or place", run: () => links()[chosen.value]?.click() },
		{ key: "f", meaning: "filter by title", run: () => filter.current?.focus() },
		{
			key: "Escape",
			meaning: "to the list",
			run: () => {
				if (document.activeElement === filter.current) filter.current?.blur();
				else go(addressOf(["conversations"]));
			},
		},
	]);
	return (
		<>
			<h1 class="visually-hidden">Search</h1>
			<StatusButtons />
			<Filters input={filter} orders={ORDERS} />
			<div ref={table}>
				<Hits results={results} chosen={chosen.value} />
			</div>
			<p class="small muted" role="status">
				{stateOf(results)}
			</p>
			<Lag reach={results.reach.value} />
			{results.more.value && (
				<button type="button" disabled={results.loading.value} onClick={() => void results.load()}>
					More results
				</button>
			)}
			<Help open={results.hits.value.length === 0 && !results.loading.value} />
		</>
	);
}

/** Returns in words what the page shows. */
function stateOf(results: SearchResults): string {
	if (results.loading.value) return "Searching…";
	const count = results.hits.value.length;
	if (count === 0) return "";
	const conversations = count === 1 ? "1 conversation" : `${full(count)} conversations`;
	return results.more.value ? `The first ${conversations}` : conversations;
}

function Hits({ results, chosen }: { readonly results: SearchResults; readonly chosen: number }) {
	const hits = results.hits.value;
	const problem = results.problem.value;
	if (problem?.kind === "argument")
		return (
			<Notice title="This cannot be searched">
				<span>{problem.text.replace(/^query /, "The query ")}.</span>
			</Notice>
		);
	if (problem !== undefined) return <ProblemNotice problem={problem} retry={() => void results.load()} />;
	if (hits.length === 0) {
		if (results.loading.value) return null;
		if (!query.value.has("query"))
			return <Notice title="Search titles, messages, commands, file names and errors of all conversations" />;
		return <NothingFound more={results.more.value} />;
	}
	let first = 0;
	return (
		<div class="list hits" role="table" aria-label="Hits" aria-rowcount={-1}>
			<Head />
			{hits.map((hit) => {
				const { summary, places } = hit;
				if (summary === undefined) return null;
				const title = titlePlace(hit, summary);
				const others = places.filter((place) => place !== title);
				const at = chosen - first;
				first += 1 + others.length;
				return (
					<div key={summary.id} class="hit" role="rowgroup">
						<Line
							row={{ sequence: 0n, summary, unreadable: false, fresh: false }}
							chosen={at === 0}
							label={title && <Marked text={title.snippet} ranges={title.ranges} />}
						/>
						{others.length > 0 && (
							<div role="row">
								<div role="cell" aria-colspan={7} class="places">
									{others.map((place, index) => (
										<Place key={`${place.sequence}`} id={summary.id} place={place} chosen={at === index + 1} />
									))}
								</div>
							</div>
						)}
					</div>
				);
			})}
		</div>
	);
}

/** Returns the place that is the whole title: it is marked in the conversation's label. */
function titlePlace({ places }: SearchHit, { title }: ConversationSummary): SearchPlace | undefined {
	return places.find(({ field, snippet }) => field === SearchField.TITLE && snippet === title);
}

const FIELDS: Readonly<Record<SearchField, string>> = {
	[SearchField.UNSPECIFIED]: "text",
	[SearchField.TITLE]: "title",
	[SearchField.MESSAGE]: "message",
	[SearchField.FINISH_MESSAGE]: "finish message",
	[SearchField.COMMAND]: "command",
	[SearchField.FILE_NAME]: "file name",
	[SearchField.ERROR]: "error",
};

const IS_CODE: ReadonlySet<SearchField> = new Set([SearchField.COMMAND, SearchField.FILE_NAME]);

/** A text that was found, as a link to its event, where the words of the query are marked. */
function Place({ id, place, chosen }: { readonly id: string; readonly place: SearchPlace; readonly chosen: boolean }) {
	const { sequence, field, snippet, ranges } = place;
	const event: Record<string, string> = sequence === 0n ? {} : { event: String(sequence) };
	const address = addressOf(["conversations", id], { ...event, query: query.value.get("query") ?? "" });
	return (
		<a class={`place${chosen ? " chosen" : ""}`} href={address}>
			<span class={`small ${field === SearchField.ERROR ? "problem-text" : "muted"}`}>{FIELDS[field] ?? "text"}</span>
			<span class={`snippet${IS_CODE.has(field) ? " code" : ""}`}>
				<Marked text={snippet} ranges={ranges} />
			</span>
			<span class="small muted number">{sequence > 0n && `event ${full(sequence)}`}</span>
		</a>
	);
}

interface MarkedProps {
	readonly text: string;
	/** In characters (Unicode code points), in order and without overlaps. */
	readonly ranges: readonly { readonly start: number; readonly end: number }[];
}

/** A text with parts that are marked. */
function Marked({ text, ranges }: MarkedProps) {
	const characters = [...text];
	const part = (from: number, to?: number): string => characters.slice(from, to).join("");
	return (
		<>
			{ranges.map(({ start, end }, index) => (
				<>
					{part(ranges[index - 1]?.end ?? 0, start)}
					<mark>{part(start, end)}</mark>
				</>
			))}
			{part(ranges.at(-1)?.end ?? 0)}
		</>
	);
}

function NothingFound({ more }: { readonly more: boolean }) {
	const filtered = hasFilters(query.value);
	if (more) return <Notice title="Nothing found yet: there is more to search" />;
	return (
		<Notice title="Nothing found">
			{filtered && (
				<button type="button" onClick={() => replaceQuery(withoutFilters(query.value))}>
					Remove all filters
				</button>
			)}
		</Notice>
	);
}

/** Says that the newest events cannot be found yet. */
function Lag({ reach }: { readonly reach: Reach | undefined }) {
	if (reach === undefined || reach.indexed >= reach.newest) return null;
	return (
		<p class="row small" role="status">
			<span>
				The index reaches up to event {full(reach.indexed)} of {full(reach.newest)}. What came later is found when it
				has caught up.
			</span>
			<button
				type="button"
				onClick={() => {
					searchedAgain.value += 1;
				}}
			>
				Search again
			</button>
		</p>
	);
}

const SYNTAX: readonly (readonly [string, string])[] = [
	["login error", "texts with both words, in any case, with and without accents"],
	['"login page"', "the words one after the other"],
	["log*", "words that begin like this"],
	["login -test", "texts without the word test"],
	["src/app.ts, read_file", "these words one after the other, whatever is between them"],
	["FooBar", "this name; it is also found by foo and by bar"],
];

/** What a query can say. */
function Help({ open }: { readonly open: boolean }) {
	return (
		<details class="syntax" open={open}>
			<summary>How to search</summary>
			<table>
				<tbody>
					{SYNTAX.map(([example, meaning]) => (
						<tr key={example}>
							<td>
								<code>{example}</code>
							</td>
							<td>{meaning}</td>
						</tr>
					))}
				</tbody>
			</table>
			<p class="small muted">
				One event, or the title, must have all words. Titles, messages, commands and file names of tool calls, and
				errors are searched; the output of tools is not.
			</p>
		</details>
	);
}
