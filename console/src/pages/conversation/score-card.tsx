import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Score } from "../../../../gen/conversations/v1/score_service_pb.js";
import { Refusal } from "../../parts/fields.tsx";
import { full } from "../../parts/format.ts";
import { ProblemLine } from "../../parts/notice.tsx";
import { CRITIC, plainScore, ScoreValue, Thumb } from "../../parts/score.tsx";
import { Ago } from "../../parts/time.tsx";
import { useCaller, useScope } from "../../service/caller.ts";
import { useShortcuts } from "../../shell/keys.ts";
import { addressOf } from "../../shell/route.ts";
import { messageOf } from "./scores.ts";
import type { OpenConversation } from "./state.ts";
import type { Step } from "./steps.ts";

interface OfConversation {
	readonly open: OpenConversation;
}

/** Name of the caller, if it may give scores; else undefined. */
function useGiver(): string | undefined {
	const caller = useCaller();
	return useScope("score") ? caller?.name : undefined;
}

/**
 * The thumbs for the conversation, and the keys for them, which are those of the chosen message while there is one.
 *
 * @param props.message id of the chosen message of the agent; undefined if none is chosen
 */
export function GiveScores({ open, message }: OfConversation & { readonly message: string | undefined }) {
	const { scores } = open;
	const giver = useGiver();
	const target = message ?? "";
	const what = message === undefined ? "the conversation" : "the chosen message";
	const toggle = (isUp: boolean) => () => giver !== undefined && scores.toggle(giver, target, isUp);
	const keys = [
		{ key: "+", meaning: `thumbs up for ${what}, or take it back`, run: toggle(true), once: true },
		{ key: "-", meaning: `thumbs down for ${what}, or take it back`, run: toggle(false), once: true },
		{
			key: "m",
			meaning: `write a note on ${what}`,
			run: () => scores.openNote(target),
		},
	];
	useShortcuts(giver === undefined ? [] : keys);
	if (giver === undefined) return null;
	return (
		<>
			<Thumbs open={open} eventId="" giver={giver} hasKeys={message === undefined} />
			<span class="visually-hidden" role="status">
				{scores.said.value}
			</span>
			<Refusal text={scores.refusal.value} />
			{/* Not before the present note is known, which it would replace. */}
			{scores.noted.value !== undefined && scores.all.value !== undefined && (
				<NoteDialog open={open} eventId={scores.noted.value} giver={giver} />
			)}
		</>
	);
}

interface ThumbsProps extends OfConversation {
	/** Empty for the conversation itself. */
	readonly eventId: string;
	readonly giver: string;
	/** Whether the keys are for this target. */
	readonly hasKeys: boolean;
}

function Thumbs({ open: { scores }, eventId, giver, hasKeys }: ThumbsProps) {
	const present = scores.thumbOf(giver, eventId);
	const given = plainScore(present?.value);
	const thumb = (isUp: boolean, key: string) => (
		<button
			type="button"
			class={isUp ? "finished" : "error"}
			aria-pressed={given === isUp}
			aria-label={isUp ? "Thumbs up" : "Thumbs down"}
			onClick={() => scores.toggle(giver, eventId, isUp)}
		>
			<Thumb isUp={isUp} /> {hasKeys && <kbd>{key}</kbd>}
		</button>
	);
	return (
		<fieldset class="thumbs" aria-label={eventId === "" ? "Score of the conversation" : "Score of the message"}>
			{thumb(true, "+")}
			{thumb(false, "-")}
			<button type="button" aria-haspopup="dialog" onClick={() => scores.openNote(eventId)}>
				{present?.comment ? "Edit the note" : "Note"} {hasKeys && <kbd>m</kbd>}
			</button>
		</fieldset>
	);
}

/** Most characters of a note. */
const MOST = 4_096;

/** Asks for a note, which is the comment of a thumb. */
function NoteDialog({ open: { scores }, eventId, giver }: Omit<ThumbsProps, "hasKeys">) {
	const dialog = useRef<HTMLDialogElement>(null);
	const present = scores.thumbOf(giver, eventId);
	const text = useSignal(present?.comment ?? "");
	const isUp = useSignal(plainScore(present?.value));
	useEffect(() => dialog.current?.showModal(), []);
	const title = eventId === "" ? "Note on the conversation" : "Note on the chosen message";
	const save = async (): Promise<void> => {
		if (await scores.note(eventId, isUp.value === true, text.value)) dialog.current?.close();
	};
	return (
		<dialog
			ref={dialog}
			class="note"
			aria-label={title}
			onClose={() => {
				scores.noted.value = undefined;
			}}
		>
			<form
				onSubmit={(event) => {
					event.preventDefault();
					void save();
				}}
			>
				<h2>{title}</h2>
				<fieldset class="row checks" aria-label="Thumb">
					{[true, false].map((value) => (
						<label key={String(value)} class={value ? "finished" : "error"}>
							<input
								type="radio"
								name="thumb"
								required
								checked={isUp.value === value}
								onChange={() => {
									isUp.value = value;
								}}
							/>
							<Thumb isUp={value} /> {value ? "up" : "down"}
						</label>
					))}
				</fieldset>
				<textarea
					aria-label="Note"
					autofocus={present !== undefined}
					rows={5}
					maxLength={MOST}
					value={text.value}
					onInput={(event) => {
						text.value = event.currentTarget.value;
					}}
				/>
				<p class="row">
					<button type="submit" class="primary">
						Save
					</button>
					<button type="button" onClick={() => dialog.current?.close()}>
						Cancel
					</button>
					<Refusal text={scores.refusal.value} />
				</p>
			</form>
		</dialog>
	);
}

/** Number of scores of events that are listed at first. */
const SHOWN = 20;

/** The scores of a conversation, then those of its events. */
export function ScoreCard({ open }: OfConversation) {
	const { scores } = open;
	const isAll = useSignal(false);
	const all = scores.all.value;
	const problem = scores.problem.value;
	const own = scores.byEvent.value.get("") ?? [];
	const ofEvents = all?.slice(own.length) ?? [];
	return (
		<section class="card" aria-labelledby="scores-title">
			<h2 id="scores-title">Scores</h2>
			{problem !== undefined && <ProblemLine problem={problem} retry={() => scores.request()} />}
			{all === undefined && problem === undefined && <p class="small muted">Loading…</p>}
			{all?.length === 0 && <p class="small muted">Nobody has given one yet.</p>}
			<Listed of={own} />
			{ofEvents.length > 0 && (
				<>
					<h2>Of its events</h2>
					<Listed
						of={isAll.value ? ofEvents : ofEvents.slice(0, SHOWN)}
						placeOf={({ eventId }) => {
							const step = open.stepWith(eventId);
							return step && addressOf(["conversations", open.id], { event: String(step.sequence) });
						}}
					/>
				</>
			)}
			{!isAll.value && ofEvents.length > SHOWN && (
				<button
					type="button"
					class="small more"
					onClick={() => {
						isAll.value = true;
					}}
				>
					show all {full(ofEvents.length)}
				</button>
			)}
		</section>
	);
}

interface ListedProps {
	readonly of: readonly Score[];
	/** Returns the address of what was scored; undefined if it is not there. */
	readonly placeOf?: (score: Score) => string | undefined;
}

function Listed({ of, placeOf }: ListedProps) {
	const caller = useCaller();
	if (of.length === 0) return null;
	return (
		<ul class="scores small">
			{of.map((score) => {
				const { eventId, name, value, giver, givenAt, comment } = score;
				const place = placeOf?.(score);
				return (
					<li key={`${eventId} ${name} ${giver}`}>
						{place === undefined ? <strong>{name}</strong> : <a href={place}>{name}</a>}{" "}
						<ScoreValue name={name} value={plainScore(value)} />{" "}
						<span class="muted">
							{giver !== name && `${giver}${giver === caller?.name ? " (you)" : ""} · `}
							<Ago time={givenAt} />
						</span>
						{comment !== "" && <p>{comment}</p>}
					</li>
				);
			})}
		</ul>
	);
}

interface StepScoresProps extends OfConversation {
	readonly step: Step;
	/** Whether the step is chosen. */
	readonly chosen: boolean;
}

/** The scores of a step, and the thumbs for it if it is a message that is chosen. */
export function StepScores({ open, step, chosen }: StepScoresProps) {
	const giver = useGiver();
	const message = chosen ? messageOf(step) : undefined;
	// The step itself shows what its critic says.
	const isShown = (name: string): boolean =>
		name !== CRITIC || step.events.every(({ members }) => (members.critic_result ?? null) === null);
	const of = step.events.flatMap(({ id }) => open.scores.byEvent.value.get(id) ?? []);
	return (
		<>
			<Listed of={of.filter(({ name }) => isShown(name))} />
			{giver !== undefined && message !== undefined && <Thumbs open={open} eventId={message} giver={giver} hasKeys />}
		</>
	);
}
