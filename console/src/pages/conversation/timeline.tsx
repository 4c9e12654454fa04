import { type Signal, useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { ConversationExecutionStatus as Status } from "../../../../gen/conversations/v1/conversation_pb.js";
import type { TextQuery } from "../../../../src/search/query.ts";
import { cost, dayAndTime, duration, exactTime, full, isSameDay, timeOfDay } from "../../parts/format.ts";
import { Formatted } from "../../parts/formatted.tsx";
import { Notice } from "../../parts/notice.tsx";
import { VirtualList } from "../../parts/virtual-list.tsx";
import { useShortcuts } from "../../shell/keys.ts";
import { addressOf, query, setQuery } from "../../shell/route.ts";
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
/** Pixels from the end of the page within which its end counts as shown. */
const END = 60;

/** What happened, step by step. */
export function Timeline({ open }: { readonly open: OpenConversation }) {
	const search = useRef<HTMLInputElement>(null);
	const wanted = useSignal("");
	const showStates = useSignal(false);
	const steps = open.steps.value;
	const places = open.gapPlaces.value;
	const marked = useMemo(() => new Set(places.map(({ step }) => step)), [places]);
	const event = query.value.get("event");
	const searched = query.value.get("query");
	const found = useMemo(() => queryOf(searched), [searched]);
	const isWanted = (step: Step): boolean => step.events.some(({ sequence }) => String(sequence) === event);
	const shown = useMemo(() => {
		const words = wanted.value.toLowerCase();
		return steps.filter(
			(step) =>
				(marked.has(step) || isWanted(step) || showStates.value || !isMinor(step)) &&
				(words === "" ||
					[step.title, step.text, step.input, step.output].some((text) => text.toLowerCase().includes(words))),
		);
	}, [steps, wanted.value, showStates.value, marked, event]);
	const costs = useMemo(() => costsOf(open, steps), [steps, open.calls.value]);
	const marks = useMemo(() => marksOf(steps, costs), [steps, costs]);
	const focus = shown.findIndex(isWanted);
	const isGone = event !== null && focus < 0 && wanted.value === "" && !open.loadingEvents.value;
	const running = open.summary.value?.executionStatus === Status.RUNNING;
	const follows = useFollowing(running && event === null);
	const chosen = focus >= 0 ? focus : follows.value ? shown.length - 1 : undefined;
	const dates = useMemo(() => new Set(shown.filter((step, index) => isNewDay(step, shown[index - 1]))), [shown]);
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
							places={marked.has(step) ? places.filter((place) => place.step === step) : []}
							id={open.id}
							step={step}
							chosen={index === focus}
							found={index === focus ? found : undefined}
							index={index}
							marks={marks.filter((mark) => mark.step === step)}
							price={costs.get(step.id)}
							dated={dates.has(step)}
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
	/** Index of the step in the timeline. */
	readonly index: number;
	readonly marks: readonly Mark[];
	readonly price: number | undefined;
	/** Whether the day is shown beside the time. */
	readonly dated: boolean;
	/** Gaps before and after the step. */
	readonly places: readonly GapPlace[];
}

function StepView({ id, step, chosen, found, index, marks, price, dated, places }: StepViewProps) {
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
					{marks.map(({ word }) => (
						<span key={word} class="tag waiting">
							{word}
						</span>
					))}
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
				<p class="said">{cut}</p>
			) : (
				<pre class={form}>{cut}</pre>
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

/** Whether a step is the first one of its day, of several days. */
function isNewDay(step: Step, before: Step | undefined): boolean {
	const today = before === undefined ? new Date() : new Date(before.time);
	return !isSameDay(new Date(step.time), today);
}

/**
 * Whether the newest step is kept in view: from the start, until the person scrolls back, and again at the end of the
 * page. A run that begins later is followed by who is at the end already.
 *
 * @param possible whether there is something to follow
 */
function useFollowing(possible: boolean): Signal<boolean> {
	const follows = useSignal(possible);
	useLayoutEffect(() => {
		if (!possible) {
			follows.value = false;
			return;
		}
		if (isAtEnd()) follows.value = true;
		const ended = new AbortController();
		const { signal } = ended;
		// Whether the person moved on last. The end of a scroll of the page itself says nothing about them.
		let forward = false;
		const listen = <Name extends keyof WindowEventMap>(
			name: Name,
			wayOf: (event: WindowEventMap[Name]) => "back" | "forward" | "either" | undefined,
		) =>
			addEventListener(
				name,
				(event) => {
					const way = wayOf(event);
					if (way === undefined) return;
					if (way !== "forward") follows.value = false;
					forward = way !== "back";
				},
				{ signal, passive: true },
			);
		listen("wheel", ({ deltaY }) => (deltaY < 0 ? "back" : "forward"));
		listen("touchmove", () => "either");
		listen("keydown", ({ key, shiftKey, target }) => {
			if (target instanceof HTMLInputElement) return undefined;
			if (["ArrowUp", "PageUp", "Home", "Tab"].includes(key) || (key === " " && shiftKey)) return "back";
			return ["ArrowDown", "PageDown", "End", " "].includes(key) ? "forward" : undefined;
		});
		// On the scroll bar.
		listen("pointerdown", ({ clientX }) => (clientX >= document.documentElement.clientWidth ? "either" : undefined));
		addEventListener(
			"scrollend",
			() => {
				if (forward && isAtEnd()) follows.value = true;
			},
			{ signal },
		);
		return () => ended.abort();
	}, [possible]);
	return follows;
}

function isAtEnd(): boolean {
	return innerHeight + scrollY >= document.documentElement.scrollHeight - END;
}

/** Returns how much a text is: its lines, or the characters of a few long ones. */
function sizeOf(text: string): string {
	const lines = text.split("\n").length;
	return lines > LINES ? `${full(lines)} lines` : `${full(text.length)} characters`;
}

/** Returns the cost of steps: of the call that was listed last before the step, and belongs to no step before it. */
function costsOf(open: OpenConversation, steps: readonly Step[]): ReadonlyMap<string, number> {
	const calls = open.calls.value.filter((call) => call.cost !== undefined);
	const prices = new Map<string, number>();
	let next = 0;
	const seen = new Set<string>();
	for (const { id, responseId, time } of steps) {
		if (responseId === undefined || seen.has(responseId)) continue;
		seen.add(responseId);
		let price: number | undefined;
		for (; next < calls.length; next += 1) {
			const call = calls[next];
			if (call === undefined || call.time * 1000 > time + 500) break;
			price = (price ?? 0) + (call.cost ?? 0);
		}
		if (price !== undefined) prices.set(id, price);
	}
	return prices;
}

/** A step that stands out among the others. */
interface Mark {
	readonly word: "slowest" | "dearest";
	readonly step: Step;
	/** Its time or its cost, with the unit. */
	readonly value: string;
}

/** Returns which steps are the slowest and the dearest. */
function marksOf(steps: readonly Step[], costs: ReadonlyMap<string, number>): readonly Mark[] {
	const mark = (
		word: Mark["word"],
		value: (step: Step) => number | undefined,
		shown: (value: number) => string,
	): Mark[] => {
		const found = steps.filter((step) => (value(step) ?? 0) > 0).sort((a, b) => (value(b) ?? 0) - (value(a) ?? 0));
		const [step] = found;
		return step === undefined || found.length < 2 ? [] : [{ word, step, value: shown(value(step) ?? 0) }];
	};
	return [...mark("slowest", (step) => step.duration, duration), ...mark("dearest", ({ id }) => costs.get(id), cost)];
}
