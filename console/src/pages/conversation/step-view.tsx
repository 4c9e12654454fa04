import { useSignal } from "@preact/signals";
import { useContext, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { TextQuery } from "../../../../src/search/query.ts";
import { cost, dayAndTime, duration, exactTime, full, short, timeOfDay } from "../../parts/format.ts";
import { LongText } from "../../parts/long-text.tsx";
import { addressOf } from "../../shell/route.ts";
import type { Price } from "./attribution.ts";
import { DiffView } from "./diff-view.tsx";
import { CopyButton, Formatted, type Showing, ShowingContext } from "./formatted.tsx";
import { foundIn, useFound } from "./found.ts";
import type { GapPlace } from "./gap-places.ts";
import { GapMark } from "./missing.tsx";
import { type Part, type TaskItem, textsOfParts } from "./parts.ts";
import { lookOfStep, type Step } from "./steps.ts";
import { isPlain, type TerminalLine, terminalLines, terminalText } from "./terminal.ts";
import { Tree } from "./tree.tsx";

/** Characters of a text that are shown before it is opened. */
const FOLDED = 600;
/** Lines of a text that are shown before it is opened. */
const LINES = 12;
/** Lines of an output that are shown at its start and at its end before it is opened, and characters of each. */
const END_LINES = 7;
const END_CHARACTERS = 900;

export interface StepViewProps {
	/** Id of the conversation. */
	readonly id: string;
	readonly step: Step;
	readonly chosen: boolean;
	/** The search that led to the step; undefined if none did. */
	readonly found: TextQuery | undefined;
	/** Words that a person looks for in the timeline; empty if none. */
	readonly wanted: string;
	/** Index of the chosen step in the timeline. */
	readonly index: number;
	/** The words that mark the step. */
	readonly marks: string;
	readonly price: Price | undefined;
	/** Whether the day is shown beside the time. */
	readonly dated: boolean;
	/** Whether the step waits for a person to confirm it. */
	readonly waits: boolean;
	/** Gaps before and after the step. */
	readonly places: readonly GapPlace[];
	/** Ids of the conversations that the step began, separated by spaces. */
	readonly childIds: string;
	/** Shows the conversations that the step began. */
	readonly showChild: ((id: string) => preact.ComponentChildren) | undefined;
	/** Shows the scores of the step, and what gives one while it is chosen. */
	readonly showScores?: (step: Step, chosen: boolean) => preact.ComponentChildren;
}

/** A step. It is drawn anew only when something of it has changed. */
export function StepView(props: StepViewProps) {
	return useMemo(() => <StepBody {...props} />, Object.values(props));
}

function StepBody(props: StepViewProps) {
	const {
		id,
		step,
		chosen,
		found,
		wanted,
		index,
		marks,
		price,
		dated,
		waits,
		places,
		childIds,
		showChild,
		showScores,
	} = props;
	const article = useRef<HTMLElement>(null);
	const { isStatic } = useContext(ShowingContext);
	useFound(article, found, `${index} ${step.events.length}`);
	const showing = useMemo((): Showing => {
		const words = wanted.toLowerCase();
		return {
			isStatic,
			opens: (text) =>
				(found !== undefined && foundIn(found, text).length > 0) ||
				(words !== "" && text.toLowerCase().includes(words)),
		};
	}, [found, wanted, isStatic]);
	const { title, subject, tags, parts } = lookOfStep(step);
	const time = new Date(step.time);
	const facts = [
		dated || isStatic ? dayAndTime(time) : timeOfDay(time),
		step.duration === undefined ? "" : duration(step.duration),
		price?.cost === undefined ? "" : cost(price.cost),
		price?.tokens === undefined ? "" : `${short(price.tokens)} tokens`,
	].filter(Boolean);
	const gaps = (areBefore: boolean) =>
		places
			.filter(({ isBefore }) => isBefore === areBefore)
			.map(({ gap }) => <GapMark key={gap.missingEventId} gap={gap} />);
	return (
		<ShowingContext.Provider value={showing}>
			{gaps(true)}
			<article ref={article} class={`step ${step.look}${step.failed ? " failed" : ""}${chosen ? " chosen" : ""}`}>
				<header class="row">
					<strong>{title}</strong>
					{subject !== "" && <span class="subject">{subject}</span>}
					{tags.map(({ word, kind }) => (
						<span key={word} class={`tag ${kind}`}>
							{word}
						</span>
					))}
					{waits && <span class="tag waiting">waits for a confirmation</span>}
					{marks !== "" && <span class="tag waiting">{marks}</span>}
					{isStatic ? (
						<span class="small muted step-facts">{facts.join(" · ")}</span>
					) : (
						<a
							class="small muted step-facts"
							href={addressOf(["conversations", id], { event: String(step.sequence) })}
							title={`${exactTime(time)} · event ${step.sequence} · ${step.id}`}
						>
							{facts.join(" · ")}
						</a>
					)}
				</header>
				<Parts parts={parts} />
				{showChild !== undefined && childIds.split(" ").filter(Boolean).map(showChild)}
				{showScores?.(step, chosen)}
				{chosen && <Members step={step} />}
			</article>
			{gaps(false)}
		</ShowingContext.Provider>
	);
}

/** The parts of a step. They have no identity but their place. */
function Parts({ parts }: { readonly parts: readonly Part[] }) {
	return (
		<>
			{parts.map((part, index) => (
				<PartView key={index} part={part} />
			))}
		</>
	);
}

function PartView({ part }: { readonly part: Part }) {
	switch (part.kind) {
		case "markdown":
			return <Folded text={part.text} lines={part.cut} show={(text) => <Formatted text={text} />} />;
		case "text":
			return <Folded text={part.text} lines={part.cut} show={said} />;
		case "command":
			return <Command text={part.text} />;
		case "terminal":
			return <TerminalOutput text={part.text} />;
		case "code":
			return (
				<div class="code-block">
					{part.label !== "" && <p class="small muted label">{part.label}</p>}
					<Folded text={part.text} show={code} />
				</div>
			);
		case "diff":
			return <DiffView part={part} />;
		case "picture":
			return <Picture name={part.name} address={part.address} />;
		case "facts":
			return (
				<dl class="values small">
					{part.facts.map(([name, value], index) => (
						<div key={index}>
							<dt>{name}</dt>
							<dd>{value}</dd>
						</div>
					))}
				</dl>
			);
		case "tasks":
			return <Tasks tasks={part.tasks} />;
		case "fold":
			return <Fold title={part.title} parts={part.parts} />;
	}
}

function said(text: string) {
	return (
		<p class="said">
			<LongText text={text} />
		</p>
	);
}

function code(text: string) {
	return (
		<pre>
			<LongText text={text} />
		</pre>
	);
}

function Command({ text }: { readonly text: string }) {
	return (
		<div class="command">
			<Folded text={text} show={code} />
			<CopyButton text={text} what="the command" />
		</div>
	);
}

const TASKS: Readonly<Record<string, readonly [glyph: string, word: string]>> = {
	todo: ["○", "to do"],
	in_progress: ["▶", "in progress"],
	done: ["✓", "done"],
};

function Tasks({ tasks }: { readonly tasks: readonly TaskItem[] }) {
	return (
		<ul class="tasks">
			{tasks.map(({ status, title, notes }, index) => {
				const [glyph, word] = TASKS[status] ?? ["·", status];
				return (
					<li key={index} class={status}>
						<span aria-hidden="true">{glyph}</span> {title} <span class="small muted">{word}</span>
						{notes !== "" && <p class="small muted notes">{notes}</p>}
					</li>
				);
			})}
		</ul>
	);
}

/** A picture of a data: URL. It is decoded when it comes into view, and shown large by a click. */
function Picture({ name, address }: { readonly name: string; readonly address: string }) {
	const { isStatic } = useContext(ShowingContext);
	const large = useSignal(false);
	const picture = <img src={address} alt={name} loading="lazy" decoding="async" />;
	if (isStatic) return <p class="picture">{picture}</p>;
	return (
		<button
			type="button"
			class={`picture${large.value ? " large" : ""}`}
			aria-pressed={large.value}
			title={large.value ? "Show it small" : "Show it large"}
			onClick={() => {
				large.value = !large.value;
			}}
		>
			{picture}
		</button>
	);
}

/** Parts behind a fold. They are made when it is opened first. */
function Fold({ title, parts }: { readonly title: string; readonly parts: readonly Part[] }) {
	const { isStatic, opens } = useContext(ShowingContext);
	const isFound = useMemo(() => !isStatic && textsOfParts(parts).some(opens), [parts, opens]);
	const open = useSignal(isFound);
	useLayoutEffect(() => {
		if (isFound) open.value = true;
	}, [isFound]);
	if (isStatic)
		return (
			<details>
				<summary>{title}</summary>
				<Parts parts={parts} />
			</details>
		);
	return (
		<div class="fold">
			<button
				type="button"
				class="small more"
				aria-expanded={open.value}
				onClick={() => {
					open.value = !open.value;
				}}
			>
				<span aria-hidden="true">{open.value ? "▾" : "▸"}</span> {title}
			</button>
			{open.value && (
				<div class="fold-parts">
					<Parts parts={parts} />
				</div>
			)}
		</div>
	);
}

interface FoldedProps {
	readonly text: string;
	readonly show: (text: string) => preact.ComponentChildren;
	/** Number of lines that are shown while it is folded. */
	readonly lines?: number | undefined;
}

/** A text of which the start is shown while it is long, until a person opens it. */
function Folded({ text, show, lines = LINES }: FoldedProps) {
	const { isStatic } = useContext(ShowingContext);
	const long = !isStatic && (text.length > FOLDED || text.split("\n").length > lines + 2);
	const open = useOpened(long, text);
	const cut = long && !open.value ? text.split("\n").slice(0, lines).join("\n").slice(0, FOLDED) : text;
	return (
		<>
			{show(cut)}
			{long && <Opener open={open} text={text} />}
		</>
	);
}

/** What a program wrote. While it is long, its start and its end are shown: errors stand at the end. */
function TerminalOutput({ text }: { readonly text: string }) {
	const { isStatic } = useContext(ShowingContext);
	const lines = useMemo(() => (isPlain(text) ? text.split("\n").map(plainLine) : terminalLines(text)), [text]);
	const long = !isStatic && (text.length > 2 * END_CHARACTERS || lines.length > 2 * END_LINES + 2);
	const open = useOpened(
		long,
		useMemo(() => terminalText(text), [text]),
	);
	if (!long || open.value)
		return (
			<>
				<pre class="output">{isPlain(text) ? <LongText text={text} /> : <TerminalLines lines={lines} />}</pre>
				{long && <Opener open={open} text={text} />}
			</>
		);
	const [start, end] = ends(lines);
	return (
		<>
			<pre class="output">
				<TerminalLines lines={start} />
			</pre>
			<Opener open={open} text={text} />
			{end.length > 0 && (
				<pre class="output">
					<TerminalLines lines={end} />
				</pre>
			)}
		</>
	);
}

function plainLine(text: string): TerminalLine {
	return [{ text, style: "" }];
}

/** Returns the lines at the start and at the end of an output. A long line is cut; a single one has no end. */
function ends(lines: readonly TerminalLine[]): readonly [readonly TerminalLine[], readonly TerminalLine[]] {
	const some = lines.length > 2 * END_LINES ? END_LINES : Math.ceil(lines.length / 2);
	const cut = (all: readonly TerminalLine[]): readonly TerminalLine[] => {
		let left = END_CHARACTERS;
		return all.map((line) =>
			line.map(({ text, style }) => {
				const shown = text.slice(0, Math.max(left, 0));
				left -= text.length;
				return { text: shown, style };
			}),
		);
	};
	return [cut(lines.slice(0, some)), lines.length > 1 ? cut(lines.slice(-some)) : []];
}

/** Lines of a terminal, in blocks of which only those in view are laid out. */
function TerminalLines({ lines }: { readonly lines: readonly TerminalLine[] }) {
	const blocks = [];
	for (let from = 0; from < lines.length; from += 50) blocks.push(lines.slice(from, from + 50));
	const isLong = blocks.length > 2;
	return (
		<>
			{blocks.map((block, index) => (
				<span
					key={index}
					class={isLong ? "text-block" : ""}
					style={isLong ? { containIntrinsicBlockSize: `auto ${block.length}lh` } : {}}
				>
					{block.map((line, at) => (
						<>
							{line.map(({ text, style }) =>
								style === "" ? <LongText text={text} /> : <span class={style}>{text}</span>,
							)}
							{index * 50 + at < lines.length - 1 && "\n"}
						</>
					))}
				</span>
			))}
		</>
	);
}

/** Whether a long text is open: a person opens it, or what they look for. */
function useOpened(long: boolean, text: string) {
	const { opens } = useContext(ShowingContext);
	const isFound = useMemo(() => long && opens(text), [long, opens, text]);
	const open = useSignal(isFound);
	useLayoutEffect(() => {
		if (isFound) open.value = true;
	}, [isFound]);
	return open;
}

function Opener({ open, text }: { readonly open: { value: boolean }; readonly text: string }) {
	return (
		<button
			type="button"
			class="small more"
			aria-expanded={open.value}
			onClick={() => {
				open.value = !open.value;
			}}
		>
			{open.value ? "show less" : `show all ${sizeOf(text)}`}
		</button>
	);
}

/** Returns how much a text is: its lines, or the characters of a few long ones. */
function sizeOf(text: string): string {
	const lines = text.split("\n").length;
	return lines > LINES ? `${full(lines)} lines` : `${full(text.length)} characters`;
}

/** The events of a step with all that they hold. */
function Members({ step }: { readonly step: Step }) {
	const open = useSignal(false);
	return (
		<>
			<button
				type="button"
				class="small more"
				aria-expanded={open.value}
				onClick={() => {
					open.value = !open.value;
				}}
			>
				{open.value ? "hide the JSON" : "show the JSON"}
			</button>
			{open.value &&
				step.events.map(({ sequence, kind, members }) => (
					<Tree key={String(sequence)} name={`event ${sequence}: ${kind}`} value={members} />
				))}
		</>
	);
}
