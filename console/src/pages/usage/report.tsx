import { type ReadonlySignal, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { CsvDownload, DownloadState } from "../../parts/download.tsx";
import { Notice, ProblemNotice } from "../../parts/notice.tsx";
import { KEY_REFUSED, type Problem, problemOf, reports } from "../../service/service.ts";
import { signOut } from "../../service/session.ts";
import { useShortcuts } from "../../shell/keys.ts";
import { query, replaceQuery } from "../../shell/route.ts";
import { apiParametersOf, withoutFilters } from "../conversations/filter.ts";
import { Filters } from "../conversations/view.tsx";

/** Milliseconds between two reads of a report. */
const INTERVAL = 60_000;

/** A report of an address, which the pages of usage and of scores show. */
export abstract class Report {
	/** Undefined until the report is there. */
	abstract readonly loaded: ReadonlySignal<unknown>;
	readonly problem = signal<Problem | undefined>(undefined);
	/** Keys of tags, by whose values a report can be grouped. */
	readonly tagKeys = signal<readonly string[]>([]);
	readonly csv = new CsvDownload();
	/** What the address has. */
	protected readonly query: URLSearchParams;
	/** Parameters of the address that are no filter. */
	readonly own: readonly string[];
	#closed = false;

	constructor(query: URLSearchParams, own: readonly string[]) {
		this.query = query;
		this.own = own;
	}

	/** Reads the report, and returns what shows it. */
	protected abstract read(): Promise<() => void>;

	/** Downloads the rows of the report as CSV, as the service writes them. */
	abstract download(): Promise<void>;

	load(): void {
		Promise.all([this.read(), reports.countConversations({ groupBy: "tag_key" })]).then(
			([show, tags]) => {
				if (this.#closed) return;
				this.problem.value = undefined;
				this.tagKeys.value = tags.counts.map(({ value }) => value);
				show();
			},
			(error: unknown) => {
				const problem = problemOf(error);
				if (problem.kind === "key") signOut(KEY_REFUSED);
				if (!this.#closed) this.problem.value = problem;
			},
		);
	}

	close(): void {
		this.#closed = true;
	}

	/** Saves what the service answers as CSV, with the filter of the address. */
	protected async save(path: string, asked: Record<string, string>, name: string): Promise<void> {
		const parameters = new URLSearchParams(asked);
		for (const [filter, value] of apiParametersOf(this.query, Date.now()))
			if (!this.own.includes(filter)) parameters.append(filter, value);
		await this.csv.save(path, parameters, name);
	}
}

/** A report that a page shows. */
interface ShownReport<Own extends Report> {
	readonly report: Own;
	/** The same, or the one before it until it is there. */
	readonly of: Own;
	readonly filter: { current: HTMLInputElement | null };
}

/**
 * Reads the report of the present address, and again at an interval, and makes the keys of its page work.
 *
 * @param make begins to read the report of an address
 */
export function useReport<Own extends Report>(make: (query: URLSearchParams) => Own): ShownReport<Own> {
	const parameters = query.value.toString();
	const report = useMemo(() => make(new URLSearchParams(parameters)), [parameters]);
	useEffect(() => {
		const timer = setInterval(() => {
			if (!document.hidden) report.load();
		}, INTERVAL);
		return () => {
			clearInterval(timer);
			report.close();
		};
	}, [report]);
	const filter = useRef<HTMLInputElement>(null);
	useShortcuts([
		{ key: "c", meaning: "download as CSV", run: () => void report.download() },
		{ key: "f", meaning: "filter", run: () => filter.current?.focus() },
		{
			key: "Escape",
			meaning: "remove all filters",
			run: () => {
				filter.current?.blur();
				replaceQuery(withoutFilters(query.value, report.own));
			},
		},
	]);
	const before = useRef(report);
	if (report.loaded.value !== undefined) before.current = report;
	return { report, of: before.current, filter };
}

interface ReportPageProps<Own extends Report> extends ShownReport<Own> {
	readonly title: string;
	/** What the report is chosen by. */
	readonly choices: ComponentChildren;
	/** What the report shows. */
	readonly children: ComponentChildren;
}

/** A page of a report: what it is chosen by, and the report, or why it is not there. */
export function ReportPage<Own extends Report>(props: ReportPageProps<Own>) {
	const { title, report, of, filter, choices, children } = props;
	const problem = report.problem.value;
	return (
		<>
			<h1 class="visually-hidden">{title}</h1>
			<div class="row filters">
				{choices}
				<button type="button" onClick={() => void report.download()}>
					CSV <kbd>c</kbd>
				</button>
			</div>
			<DownloadState csv={report.csv} />
			<Filters input={filter} isShownElsewhere={(name) => report.own.includes(name)} />
			{problem !== undefined ? (
				<ProblemNotice problem={problem} retry={() => report.load()} />
			) : of.loaded.value === undefined ? (
				<Notice title="Loading…" />
			) : (
				<div class={of === report ? "" : "stale"} aria-busy={of !== report}>
					{children}
				</div>
			)}
		</>
	);
}
