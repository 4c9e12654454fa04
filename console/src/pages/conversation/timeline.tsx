import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { ConversationExecutionStatus as Status } from "../../../../gen/conversations/v1/conversation_pb.js";
import { full, isSameDay, timeOfDay } from "../../parts/format.ts";
import { Notice } from "../../parts/notice.tsx";
import { VirtualList } from "../../parts/virtual-list.tsx";
import { useShortcuts } from "../../shell/keys.ts";
import { addressOf, query, setQuery } from "../../shell/route.ts";
import type { Mark } from "./attribution.ts";
import { Child } from "./child.tsx";
import { PrintedSteps } from "./export.tsx";
import { useFollowing } from "./following.ts";
import { queryOf } from "./found.ts";
import type { GapPlace } from "./gap-places.ts";
import { StepScores } from "./score-card.tsx";
import type { OpenConversation } from "./state.ts";
import { StepSearch } from "./step-search.ts";
import { StepView } from "./step-view.tsx";
import { isMinor, lineOfStep, lookOfStep, type Step } from "./steps.ts";
import { Waterfall } from "./waterfall.tsx";

const NO_PLACES: readonly GapPlace[] = [];

/** What happened, step by step. */
export function Timeline({ open }: { readonly open: OpenConversation }) {
	const input = useRef<HTMLInputElement>(null);
	const wanted = useSignal("");
	const showStates = useSignal(false);
	const search = useMemo(() => new StepSearch(), []);
	useEffect(() => () => search.stop(), []);
	const steps = open.steps.value;
	const places = open.gapPlaces.value;
	const marked = useMemo(() => Map.groupBy(places.values(), ({ step }) => step), [places]);
	const event = query.value.get("event");
	const searched = query.value.get("query");
	const found = useMemo(() => queryOf(searched), [searched]);
	const wantedStep = open.stepAt(event);
	useEffect(() => search.look(wanted.value, steps), [wanted.value, steps]);
	const hits = search.hits.value;
	const shown = useMemo(
		() =>
			steps.filter(
				(step) =>
					(marked.has(step) || step === wantedStep || showStates.value || !isMinor(step)) &&
					(hits === undefined || hits.has(step.id)),
			),
		[steps, hits, showStates.value, marked, wantedStep],
	);
	const { prices, marks, failed, spent } = open.attribution.value;
	const children = open.childrenOfSteps.value;
	const showChild = useMemo(() => (id: string) => <Child key={id} open={open} id={id} />, [open]);
	const showScores = useMemo(
		() => (step: Step, isChosen: boolean) => <StepScores open={open} step={step} chosen={isChosen} />,
		[open],
	);
	const focus = wantedStep === undefined ? -1 : shown.indexOf(wantedStep);
	const isGone = event !== null && focus < 0 && wanted.value === "" && !open.loadingEvents.value;
	const status = open.summary.value?.executionStatus;
	const running = status === Status.RUNNING;
	const follows = useFollowing(running && event === null);
	const chosen = focus >= 0 ? focus : follows.value ? shown.length - 1 : undefined;
	const show = (step: Step | undefined): void => {
		if (step !== undefined) setQuery((next) => next.set("event", String(step.sequence)));
	};
	const choose = (index: number): void => show(shown[Math.min(Math.max(index, 0), shown.length - 1)]);
	const at = wantedStep?.sequence;
	const markOf = (wordOfMark: Mark["word"]) => marks.find(({ word }) => word === wordOfMark)?.step;
	const failure = (isNext: boolean) =>
		isNext
			? failed.find(({ sequence }) => at === undefined || sequence > at)
			: failed.findLast(({ sequence }) => at === undefined || sequence < at);
	useShortcuts([
		{ key: "j", meaning: "next step", run: () => choose(focus + 1) },
		{ key: "k", meaning: "previous step", run: () => choose(focus - 1) },
		{ key: "g", meaning: "newest step", run: () => choose(shown.length - 1) },
		{ key: "n", meaning: "next failed step", run: () => show(failure(true)) },
		{ key: "p", meaning: "previous failed step", run: () => show(failure(false)) },
		{ key: "s", meaning: "slowest step", run: () => show(markOf("slowest")) },
		{ key: "d", meaning: "dearest step", run: () => show(markOf("dearest")) },
		{ key: "f", meaning: "find in the timeline", run: () => input.current?.focus() },
	]);
	if (steps.length === 0)
		return open.loadingEvents.value ? (
			<Notice title="Loading…" />
		) : (
			<Notice title="No event yet">
				<span>Only the record of this conversation has arrived.</span>
			</Notice>
		);
	const waiting = status === Status.WAITING_FOR_CONFIRMATION ? steps.filter(({ isOpen }) => isOpen) : [];
	return (
		<>
			<div class="row timeline-tools">
				<input
					ref={input}
					class="grow"
					type="search"
					aria-label="Search in the timeline"
					placeholder="Search in the timeline  ( f )"
					title="Finds what the steps show, also arguments and output of tools. The search in all conversations has no output of tools, no system prompts, and of arguments only commands and the names of files."
					value={wanted.value}
					onInput={(typed) => {
						wanted.value = typed.currentTarget.value;
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
					<StepLink key={word} id={open.id} step={step}>
						{word}: {value}
					</StepLink>
				))}
				{failed[0] !== undefined && (
					<StepLink id={open.id} step={failure(true) ?? failed[0]}>
						<span class="problem-text">{full(failed.length)} failed</span>
					</StepLink>
				)}
				<span class="small muted" aria-live="polite">
					{open.loadingEvents.value
						? "loading older events…"
						: search.isLooking.value
							? "searching…"
							: `${full(shown.length)} steps`}
				</span>
			</div>
			{wanted.value !== "" && (
				<p class="small muted">
					All that the steps show is searched, also arguments and output of tools. The search in all conversations does
					not have that output, nor system prompts and changes of state, and of arguments only commands and names of
					files.
				</p>
			)}
			<Waterfall spent={spent} chosen={wantedStep} show={show} />
			{waiting.length > 0 && (
				<div class="card confirm" role="status">
					<strong class="waiting">
						<span aria-hidden="true">◆</span> Waits for a person to confirm
					</strong>
					<ul>
						{waiting.map((step) => (
							<li key={step.id}>
								<StepLink id={open.id} step={step}>
									{lineOfStep(step)}
								</StepLink>{" "}
								{step.risk !== "" && <span class="tag risk">risk {step.risk}</span>}
							</li>
						))}
					</ul>
				</div>
			)}
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
							wanted={hits === undefined ? "" : wanted.value}
							index={index === focus ? index : -1}
							marks={wordsOf(marks, step)}
							price={prices.get(step.id)}
							dated={isNewDay(step, shown[index - 1])}
							waits={waiting.includes(step)}
							places={marked.get(step) ?? NO_PLACES}
							childIds={(children.get(step.id) ?? []).join(" ")}
							showChild={showChild}
							showScores={showScores}
						/>
					)}
					focus={chosen}
					follows={follows.value}
				/>
			</section>
			<PrintedSteps open={open} />
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

interface StepLinkProps {
	readonly id: string;
	readonly step: Step;
	readonly children: preact.ComponentChildren;
}

/** Leads to a step. */
function StepLink({ id, step, children }: StepLinkProps) {
	return (
		<a
			class="small"
			href={addressOf(["conversations", id], { event: String(step.sequence) })}
			title={`${lookOfStep(step).title} at ${timeOfDay(new Date(step.time))}`}
		>
			{children}
		</a>
	);
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
