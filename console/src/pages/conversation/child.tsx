import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { cost, full } from "../../parts/format.ts";
import { Reported } from "../../parts/reported.tsx";
import { StatusMark } from "../../parts/status.tsx";
import { events, type Problem, problemOf } from "../../service/service.ts";
import { addressOf } from "../../shell/route.ts";
import type { OpenConversation } from "./state.ts";
import { StepList } from "./step-list.ts";
import { StepView } from "./step-view.tsx";
import { isMinor, parseEntry, type Step } from "./steps.ts";

/** Events of a child that are read at a time, and the most that are shown below a step of its parent. */
const PAGE_SIZE = 500;
const MOST = 2_000;
/** Steps of a child that are shown at first. */
const SHOWN = 30;

interface ChildProps {
	readonly open: OpenConversation;
	readonly id: string;
}

/** The conversation of a sub-agent, below the step that began it. Its steps are read when it is opened. */
export function Child({ open, id }: ChildProps) {
	const isOpen = useSignal(false);
	const summary = open.children.value.find((child) => child.id === id);
	if (summary === undefined)
		return (
			<p class="child small muted">
				It began the conversation <a href={addressOf(["conversations", id])}>{id}</a>.
			</p>
		);
	return (
		<section class="child" aria-label="Sub-agent">
			<div class="row small">
				<button
					type="button"
					class="small more"
					aria-expanded={isOpen.value}
					onClick={() => {
						isOpen.value = !isOpen.value;
					}}
				>
					<span aria-hidden="true">{isOpen.value ? "▾" : "▸"}</span> Sub-agent:{" "}
					{summary.title ?? summary.firstMessage ?? id}
				</button>
				<StatusMark status={summary.executionStatus} />
				<span class="muted">
					<Reported value={summary.accumulatedCost} format={cost} /> · {full(summary.eventCount)} events
				</span>
				<a href={addressOf(["conversations", id])}>open it</a>
			</div>
			{isOpen.value && <ChildSteps id={id} eventCount={summary.eventCount} />}
		</section>
	);
}

interface ChildStepsProps {
	readonly id: string;
	/** Number of events that the child has. When it grows, the new ones are read. */
	readonly eventCount: bigint;
}

function ChildSteps({ id, eventCount }: ChildStepsProps) {
	const list = useMemo(() => new StepList(), [id]);
	const steps = useSignal<readonly Step[]>([]);
	const problem = useSignal<Problem | undefined>(undefined);
	const isMore = useSignal(false);
	const all = useSignal(false);
	useEffect(() => {
		const ended = new AbortController();
		readNew(id, list, ended.signal).then(
			(more) => {
				if (ended.signal.aborted) return;
				steps.value = list.steps;
				isMore.value = more;
				problem.value = undefined;
			},
			(error: unknown) => {
				if (!ended.signal.aborted) problem.value = problemOf(error);
			},
		);
		return () => ended.abort();
	}, [id, eventCount]);
	const interesting = steps.value.filter((step) => !isMinor(step));
	const shown = all.value ? interesting : interesting.slice(0, SHOWN);
	return (
		<div class="child-steps">
			{problem.value !== undefined && <p class="problem-text small">{problem.value.text}</p>}
			{steps.value.length === 0 && problem.value === undefined && <p class="small muted">Loading…</p>}
			{shown.map((step) => (
				<StepView
					key={step.id}
					id={id}
					step={step}
					chosen={false}
					found={undefined}
					wanted=""
					index={-1}
					marks=""
					price={undefined}
					dated={false}
					waits={false}
					places={NO_PLACES}
					childIds=""
					showChild={undefined}
				/>
			))}
			{shown.length < interesting.length && (
				<button
					type="button"
					class="small"
					onClick={() => {
						all.value = true;
					}}
				>
					show all {full(interesting.length)} steps
				</button>
			)}
			{isMore.value && (
				<p class="small muted">
					The first {full(MOST)} events are shown here. <a href={addressOf(["conversations", id])}>Open all</a>
				</p>
			)}
		</div>
	);
}

const NO_PLACES: readonly never[] = [];

/** Reads the events that a list does not have yet, up to the most, and returns whether there are more. */
async function readNew(conversationId: string, list: StepList, ended: AbortSignal): Promise<boolean> {
	const filter = { kindsNot: ["StreamingDeltaEvent"] };
	for (;;) {
		if (list.size >= MOST) return true;
		const page = await events.listConversationEvents(
			{ conversationId, filter, pageSize: PAGE_SIZE, afterSequence: list.newest },
			{ signal: ended },
		);
		list.add(page.events.map(parseEntry));
		if (page.nextPageToken === "") return false;
	}
}
