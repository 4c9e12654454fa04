import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { UpdateChange } from "../../../../gen/conversations/v1/update_pb.js";
import { Notice, ProblemNotice } from "../../parts/notice.tsx";
import { Ago } from "../../parts/time.tsx";
import { type Problem, problemOf } from "../../service/service.ts";
import { query, setQuery } from "../../shell/route.ts";
import { type Difference, differences } from "./difference.ts";
import { type OpenConversation, readRecord } from "./state.ts";

/** Every update with what it changed, and two versions side by side: the newest one and the one before, or chosen ones. */
export function History({ open }: { readonly open: OpenConversation }) {
	const updates = [...open.updates.value].reverse();
	const newest = updates.find(({ current }) => current)?.sequence.toString();
	const asked = query.value.get("sequence");
	const chosen = asked ?? newest ?? null;
	const other = query.value.get("with");
	// In the address, so that a link shows the same, and a later update does not take the place of what a person reads.
	useEffect(() => {
		// The person may have chosen one since.
		const isChosen = query.peek().has("sequence");
		if (!isChosen && newest !== undefined) setQuery((next) => next.set("sequence", newest));
	}, [asked, newest]);
	return (
		<div class="history">
			<div class="row filters">
				<Sequence name="sequence" label="Version at sequence" value={chosen} hint="any" />
				<Sequence name="with" label="compared with" value={other} hint="the one before" />
			</div>
			<ol>
				{updates.map((update) => {
					const sequence = String(update.sequence);
					return (
						<li key={sequence}>
							<button
								type="button"
								aria-pressed={sequence === chosen}
								onClick={() => setQuery((next) => next.set("sequence", sequence))}
							>
								<span class="number">{sequence}</span>
								<span>{UpdateChange[update.change]?.toLowerCase()}</span>
								<span class="small muted">
									{update.changedFields?.paths.join(", ")}
									{update.current ? "" : " · older than the current record"}
								</span>
								<Ago time={update.receivedAt} />
							</button>
						</li>
					);
				})}
			</ol>
			{chosen === null ? (
				<Notice title="No update yet" />
			) : (
				<Compared
					key={`${chosen} ${other}`}
					open={open}
					sequence={sequenceOf(chosen) ?? 0n}
					other={sequenceOf(other)}
				/>
			)}
		</div>
	);
}

function sequenceOf(text: string | null): bigint | undefined {
	return text !== null && /^\d+$/.test(text) ? BigInt(text) : undefined;
}

/** Chooses a version by its sequence. */
function Sequence(props: {
	readonly name: string;
	readonly label: string;
	readonly value: string | null;
	readonly hint: string;
}) {
	const { name, label, value, hint } = props;
	return (
		<label class="row small muted">
			{label}
			<input
				type="text"
				inputmode="numeric"
				size={12}
				placeholder={hint}
				value={value ?? ""}
				onChange={(event) => {
					const text = event.currentTarget.value.trim();
					setQuery((next) => {
						if (text === "") next.delete(name);
						else next.set(name, text);
					});
				}}
			/>
		</label>
	);
}

interface ComparedProps {
	readonly open: OpenConversation;
	readonly sequence: bigint;
	/** Sequence of the other version; undefined for the one before. */
	readonly other: bigint | undefined;
}

/** The record at a sequence beside another version. */
function Compared({ open, sequence, other }: ComparedProps) {
	const found = useSignal<readonly Difference[] | undefined>(undefined);
	const problem = useSignal<Problem | undefined>(undefined);
	const none = useSignal(false);
	const before =
		other ?? open.updates.value.findLast((update) => update.current && update.sequence < sequence)?.sequence;
	const load = (): void => {
		Promise.all([before === undefined ? undefined : readRecord(open.id, before), readRecord(open.id, sequence)]).then(
			([older, newer]) => {
				problem.value = undefined;
				none.value = newer === undefined;
				found.value = differences(older ?? {}, newer ?? {});
			},
			(error: unknown) => {
				problem.value = problemOf(error);
			},
		);
	};
	useEffect(load, []);
	if (problem.value !== undefined) return <ProblemNotice problem={problem.value} retry={load} />;
	if (found.value === undefined) return <Notice title="Loading…" />;
	if (none.value) return <Notice title={`There was no record at sequence ${sequence} yet`} />;
	if (found.value.length === 0) return <Notice title="The current record did not change" />;
	return (
		<div class="scroll" role="region" aria-label="Two versions" tabIndex={0}>
			<table class="card">
				<thead>
					<tr>
						<th scope="col">Member</th>
						<th scope="col">{before === undefined ? "Before" : `At ${before}`}</th>
						<th scope="col">At {String(sequence)}</th>
					</tr>
				</thead>
				<tbody>
					{found.value.slice(0, 500).map(({ path, before: was, after }) => (
						<tr key={path}>
							<th scope="row">
								<code>{path}</code>
							</th>
							<td class={was === undefined ? "" : "removed"}>{shown(was)}</td>
							<td class={after === undefined ? "" : "added"}>{shown(after)}</td>
						</tr>
					))}
				</tbody>
			</table>
		</div>
	);
}

function shown(value: unknown): string {
	if (value === undefined) return "–";
	const text = typeof value === "string" ? value : JSON.stringify(value);
	return text.length > 2000 ? `${text.slice(0, 2000)}…` : text;
}
