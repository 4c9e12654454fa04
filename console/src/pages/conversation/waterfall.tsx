import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { duration, timeOfDay } from "../../parts/format.ts";
import type { Span, SpentTime, TimeKind } from "./spent-time.ts";
import { lookOfStep, type Step } from "./steps.ts";

const KINDS: readonly TimeKind[] = ["model", "tool", "waiting"];
const WORDS: Readonly<Record<TimeKind, string>> = { model: "models", tool: "tools", waiting: "waiting" };
/** Width of the drawing in its own units, and height of each kind's lane. */
const WIDTH = 1000;
const LANE = 8;
/** Part of the time of models and tools that a single wait takes at most in the drawing, so that the rest stays visible. */
const LONGEST_WAIT = 0.05;
/** How much closer one step of the zoom is, and how close it gets. */
const ZOOM = 2;
const MAX_ZOOM = 4096;

interface WaterfallProps {
	readonly spent: SpentTime;
	/** The chosen step; undefined if there is none. */
	readonly chosen: Step | undefined;
	readonly show: (step: Step) => void;
}

/** A span and its place in the drawing of the whole, from 0 to 1. */
interface Place {
	readonly span: Span;
	readonly from: number;
	readonly to: number;
}

/** Where the time of a conversation went: three numbers, and a strip with the time of each step. */
export function Waterfall({ spent, chosen, show }: WaterfallProps) {
	const zoom = useSignal(1);
	const middle = useSignal(0.5);
	const places = useMemo(() => placesOf(spent), [spent]);
	// A step has several spans, such as that of the model before it and its own.
	const last = useSignal<Span | undefined>(undefined);
	const present =
		places.find(({ span }) => span.step === chosen && span.from === last.value?.from) ??
		places.find(({ span }) => span.step === chosen);
	if (places.length === 0) return null;
	const from = Math.min(Math.max(middle.value - 0.5 / zoom.value, 0), 1 - 1 / zoom.value);
	const look = (place: Place): void => {
		middle.value = (place.from + place.to) / 2;
		last.value = place.span;
		show(place.span.step);
	};
	const zoomTo = (next: number): void => {
		if (present !== undefined) middle.value = (present.from + present.to) / 2;
		zoom.value = Math.min(Math.max(next, 1), MAX_ZOOM);
	};
	const move = (by: number): void => {
		const index = present === undefined ? (by > 0 ? -1 : places.length) : places.indexOf(present);
		const next = places[Math.min(Math.max(index + by, 0), places.length - 1)];
		if (next !== undefined) look(next);
	};
	const keys: Readonly<Record<string, () => void>> = {
		ArrowLeft: () => move(-1),
		ArrowRight: () => move(1),
		Home: () => move(-places.length),
		End: () => move(places.length),
		"+": () => zoomTo(zoom.value * ZOOM),
		"-": () => zoomTo(zoom.value / ZOOM),
		"0": () => zoomTo(1),
	};
	return (
		<div class="waterfall">
			<div class="row small">
				<ul class="row spent" aria-label="Where the time went">
					{KINDS.map((kind) => (
						<li key={kind}>
							<span class={`swatch ${kind}`} aria-hidden="true" /> {WORDS[kind]}{" "}
							<strong>{duration(spent.sums[kind])}</strong>
						</li>
					))}
				</ul>
				<span class="zoom">
					<button type="button" aria-label="Show less of the time" onClick={keys["+"]}>
						+
					</button>
					<button type="button" aria-label="Show more of the time" disabled={zoom.value === 1} onClick={keys["-"]}>
						−
					</button>
				</span>
			</div>
			<div
				class="strip"
				role="slider"
				tabIndex={0}
				aria-label="Steps over time: arrow keys choose one, + and - zoom; long waits are shortened"
				aria-valuemin={0}
				aria-valuemax={places.length - 1}
				aria-valuenow={Math.max(present === undefined ? 0 : places.indexOf(present), 0)}
				aria-valuetext={present === undefined ? "no step is chosen" : wordsOf(present.span)}
				title={present === undefined ? "Each step over time" : wordsOf(present.span)}
				onKeyDown={(event) => {
					const run = keys[event.key];
					if (run === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
					event.preventDefault();
					run();
				}}
				onClick={(event) => {
					const { left, width } = event.currentTarget.getBoundingClientRect();
					const at = from + (event.clientX - left) / width / zoom.value;
					const place = places.find((one) => at <= one.to) ?? places.at(-1);
					if (place !== undefined) look(place);
				}}
			>
				<svg viewBox={`0 0 ${WIDTH} ${KINDS.length * LANE}`} preserveAspectRatio="none" aria-hidden="true">
					{KINDS.map((kind, lane) => (
						<path key={kind} class={kind} d={pathOf(places, kind, lane * LANE, from, zoom.value)} />
					))}
					{present && (
						<rect
							class="present"
							x={(present.from - from) * zoom.value * WIDTH}
							width={Math.max((present.to - present.from) * zoom.value * WIDTH, 2)}
							y={0}
							height={KINDS.length * LANE}
						/>
					)}
				</svg>
			</div>
		</div>
	);
}

function wordsOf({ kind, from, to, step }: Span): string {
	const { title } = lookOfStep(step);
	const what = { model: `the model, before: ${title}`, tool: title, waiting: `waiting, until: ${title}` }[kind];
	return `${duration(to - from)} ${what}, from ${timeOfDay(new Date(from))}`;
}

/** Returns the places of spans in the drawing, with long waits shortened. */
function placesOf({ spans, sums }: SpentTime): readonly Place[] {
	const longest = Math.max((sums.model + sums.tool) * LONGEST_WAIT, 1);
	const lengthOf = ({ kind, from, to }: Span) => (kind === "waiting" ? Math.min(to - from, longest) : to - from);
	const total = spans.reduce((sum, span) => sum + lengthOf(span), 0);
	let at = 0;
	return spans.map((span) => {
		const from = at;
		at += lengthOf(span) / total;
		return { span, from, to: at };
	});
}

/** Returns the path of the spans of a kind that are in view. Those that are narrower than a unit are one with others. */
function pathOf(places: readonly Place[], kind: TimeKind, top: number, from: number, zoom: number): string {
	let path = "";
	let end = -1;
	for (const { span, from: start, to } of places) {
		if (span.kind !== kind) continue;
		const left = Math.max(Math.round((start - from) * zoom * WIDTH), 0, end);
		const right = Math.min(Math.max(Math.round((to - from) * zoom * WIDTH), left + 1), WIDTH);
		if (right <= 0 || (start - from) * zoom > 1 || right <= end) continue;
		path += `M${left} ${top}h${right - left}v${LANE - 1}h${left - right}z`;
		end = right;
	}
	return path;
}
