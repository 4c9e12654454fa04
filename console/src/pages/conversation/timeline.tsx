import { useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { ConversationExecutionStatus as Status } from "../../../../gen/conversations/v1/conversation_pb.js";
import type { TextQuery } from "../../../../src/search/query.ts";
import { cost, dayAndTime, duration, exactTime, full, isSameDay, timeOfDay } from "../../parts/format.ts";
import { Formatted } from "../../parts/formatted.tsx";
import { LongText } from "../../parts/long-text.tsx";
import { Notice } from "../../parts/notice.tsx";
import { VirtualList } from "../../parts/virtual-list.tsx";
import { useShortcuts } from "../../shell/keys.ts";
import { addressOf, query, setQuery } from "../../shell/route.ts";
import type { Mark } from "./attribution.ts";
import { useFollowing } from "./following.ts";
import { foundIn, queryOf, useFound } from "./found.ts";
import type { GapPlace } from "./gap-places.ts";
import { GapMark } from "./missing.tsx";
import type { OpenConversation } from "./state.ts";
import { isMinor, type Step, SYSTEM_PROMPT } from "./steps.ts";
import { Tree } from "./tree.tsx";

/** Characters of a text that are shown before it is opened. */
const FOLDED = 600;
/** Lines of a text that are shown before it is opened. */
const LINES = 12;

const NO_PLACES: readonly GapPlace[] = [];

/** What happened, step by step. */
export function Timeline({ open }: { readonly open: OpenConversation }) {
	const search = useRef<HTMLInputElement>(null);
	const wanted = useSignal("");
	const showStates = useSignal(false);
	const steps = open.steps.value;
	const places = open.gapPlaces.value;
	const marked = useMemo(() => Map.groupBy(places.values(), ({ step }) => step), [places]);
	const event = query.value.get("event");
	const searched = query.value.get("query");
	const found = useMemo(() => queryOf(searched), [searched]);
	const wantedStep = open.stepAt(event);
	const hasWords = useMemo(() => searchFor(wanted.value), [wanted.value]);
	const shown = useMemo(
		() =>
			steps.filter(
				(step) => (marked.has(step) || step === wantedStep || showStates.value || !isMinor(step)) && hasWords(step),
			),
		[steps, hasWords, showStates.value, marked, wantedStep],
	);
	const { costs, marks } = open.attribution.value;
	const focus = wantedStep === undefined ? -1 : shown.indexOf(wantedStep);
	const isGone = event !== null && focus < 0 && wanted.value === "" && !open.loadingEvents.value;
	const running = open.summary.value?.executionStatus === Status.RUNNING;
	const follows = useFollowing(running && event === null);
	const chosen = focus >= 0 ? focus : follows.value ? shown.length - 1 : undefined;
	const show = (step: Step | undefined): void => {
		if (step !== undefined) setQuery((next) => next.set("event", String(step.sequence)));
	};
	const choose = (index: number): void => show(shown[Math.min(Math.max(index, 0), shown.length - 1)]);
	useShortcuts([
		{ key: "j", meaning: "next step", run: () => choose(focus + 1) },
		{ key: "k", meaning: "previous step", run: () => choose(focus - 1) },
		{ key: "g", meaning: "newest step", run: () => choose(shown.length - 1) },
		{
			key: "s",
			meaning: "slowest step",
			run: () => show(marks.find(({ word }) => word === "slowest")?.step),
		},
		{
			key: "d",
			meaning: "dearest step",
			run: () => show(marks.find(({ word }) => word === "dearest")?.step),
		},
		{ key: "f", meaning: "find in the timeline", run: () => search.current?.focus() },
	]);
	if (steps.length === 0)
		return open.loadingEvents.value ? (
			<Notice title="Loading…" />
		) : (
			<Notice title="No event yet">
				<span>Only the record of this conversation has arrived.</span>
			</Notice>
		);
	return (
		<>
			<div class="row timeline-tools">
				<input
					ref={search}
					class="grow"
					type="search"
					aria-label="Search in the timeline"
					placeholder="Search in the timeline  ( f )"
					value={wanted.value}
					onInput={(input) => {
						wanted.value = input.currentTarget.value;
					}}
				/>
				<label class="row small muted">
					<input
						type="checkbox"
						checked={showStates.value}
						onChange={() => {
							showStates.value = !showStates.value;
						}}
					/>
					all changes of state
				</label>
				{marks.map(({ word, step, value }) => (
					<a
						key={word}
						class="small"
						href={addressOf(["conversations", open.id], { event: String(step.sequence) })}
						title={`${step.title} at ${timeOfDay(new Date(step.time))}`}
					>
						{word}: {value}
					</a>
				))}
				<span class="small muted" aria-live="polite">
					{open.loadingEvents.value ? "loading older events…" : `${full(shown.length)} steps`}
				</span>
			</div>
			{isGone && <p role="status">The timeline has no event {event}. It may have been removed.</p>}
			<section class="timeline" aria-label="Timeline">
				<VirtualList
					items={shown}
					estimate={84}
					keyOf={({ id: key }) => key}
					render={(step, index) => (
						<StepView
							id={open.id}
							step={step}
							chosen={index === focus}
							found={index === focus ? found : undefined}
							index={index === focus ? index : -1}
							marks={wordsOf(marks, step)}
							price={costs.get(step.id)}
							dated={isNewDay(step, shown[index - 1])}
							places={marked.get(step) ?? NO_PLACES}
						/>
					)}
					focus={chosen}
					follows={follows.value}
				/>
			</section>
			{running && !follows.value && (
				<button
					type="button"
					class="newest"
					onClick={() => {
						setQuery((next) => next.delete("event"));
						follows.value = true;
					}}
				>
					<span aria-hidden="true">↓</span> follow the newest
				</button>
			)}
		</>
	);
}

interface StepViewProps {
	readonly id: string;
	readonly step: Step;
	readonly chosen: boolean;
	/** The search that led to the step; undefined if none did. */
	readonly found: TextQuery | undefined;
	/** Index of the chosen step in the timeline. */
	readonly index: number;
	/** The words that mark the step. */
	readonly marks: string;
	readonly price: number | undefined;
	/** Whether the day is shown beside the time. */
	readonly dated: boolean;
	/** Gaps before and after the step. */
	readonly places: readonly GapPlace[];
}

/** A step. It is drawn anew only when something of it has changed. */
function StepView(props: StepViewProps) {
	return useMemo(() => <StepBody {...props} />, Object.values(props));
}

function StepBody({ id, step, chosen, found, index, marks, price, dated, places }: StepViewProps) {
	const article = useRef<HTMLElement>(null);
	useFound(article, found, `${index} ${step.text.length} ${step.input.length} ${step.output.length}`);
	const facts = [
		dated ? dayAndTime(new Date(step.time)) : timeOfDay(new Date(step.time)),
		step.duration === undefined ? "" : duration(step.duration),
		price === undefined ? "" : cost(price),
	].filter(Boolean);
	const gaps = (areBefore: boolean) =>
		places
			.filter(({ isBefore }) => isBefore === areBefore)
			.map(({ gap }) => <GapMark key={gap.missingEventId} gap={gap} />);
	return (
		<>
			{gaps(true)}
			<article ref={article} class={`step ${step.look}${step.failed ? " failed" : ""}${chosen ? " chosen" : ""}`}>
				<header class="row">
					<strong>{step.title}</strong>
					{marks !== "" && <span class="tag waiting">{marks}</span>}
					<a
						class="small muted step-facts"
						href={addressOf(["conversations", id], { event: String(step.sequence) })}
						title={`${exactTime(new Date(step.time))} · event ${step.sequence} · ${step.id}`}
					>
						{facts.join(" · ")}
					</a>
				</header>
				{step.text !== "" && (
					<Folded
						text={step.text}
						form={step.isMarkdown ? "markdown" : "text"}
						found={found}
						lines={step.title === SYSTEM_PROMPT ? 2 : LINES}
					/>
				)}
				{step.input !== "" && <Folded text={step.input} form="input" found={found} />}
				{step.output !== "" && <Folded text={step.output} form="output" found={found} />}
				{chosen && <Members step={step} />}
			</article>
			{gaps(false)}
		</>
	);
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

interface FoldedProps {
	readonly text: string;
	readonly form: "markdown" | "text" | "input" | "output";
	/** A search whose words open the text. */
	readonly found: TextQuery | undefined;
	/** Number of lines that are shown while it is folded. */
	readonly lines?: number;
}

/** A text that is cut while it is long, until a person opens it. */
function Folded({ text, form, found, lines = LINES }: FoldedProps) {
	const long = text.length > FOLDED || text.split("\n").length > lines + 2;
	const isFound = useMemo(() => long && found !== undefined && foundIn(found, text).length > 0, [long, found, text]);
	const open = useSignal(isFound);
	useLayoutEffect(() => {
		if (isFound) open.value = true;
	}, [isFound]);
	const cut = long && !open.value ? text.split("\n").slice(0, lines).join("\n").slice(0, FOLDED) : text;
	return (
		<>
			{form === "markdown" ? (
				<Formatted text={cut} />
			) : form === "text" ? (
				<p class="said">
					<LongText text={cut} />
				</p>
			) : (
				<pre class={form}>
					<LongText text={cut} />
				</pre>
			)}
			{long && (
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
			)}
		</>
	);
}

/** Returns whether a step has words. It remembers the answer for each step, because steps are many and never change. */
function searchFor(words: string): (step: Step) => boolean {
	const wanted = words.toLowerCase();
	const known = new WeakMap<Step, boolean>();
	return (step) => {
		if (wanted === "") return true;
		const before = known.get(step);
		if (before !== undefined) return before;
		const has = [step.title, step.text, step.input, step.output].some((text) => text.toLowerCase().includes(wanted));
		known.set(step, has);
		return has;
	};
}

/** Returns the words that mark a step. */
function wordsOf(marks: readonly Mark[], step: Step): string {
	return marks
		.filter((mark) => mark.step.id === step.id)
		.map(({ word }) => word)
		.join(", ");
}

/** Whether a step is the first one of its day, of several days. */
function isNewDay(step: Step, before: Step | undefined): boolean {
	const today = before === undefined ? new Date() : new Date(before.time);
	return !isSameDay(new Date(step.time), today);
}

/** Returns how much a text is: its lines, or the characters of a few long ones. */
function sizeOf(text: string): string {
	const lines = text.split("\n").length;
	return lines > LINES ? `${full(lines)} lines` : `${full(text.length)} characters`;
}
