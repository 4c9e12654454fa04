import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { UpdateChange } from "../../../../gen/conversations/v1/update_pb.js";
import { Notice, ProblemNotice } from "../../parts/notice.tsx";
import { Ago } from "../../parts/time.tsx";
import { type Problem, problemOf } from "../../service/service.ts";
import { query, setQuery } from "../../shell/route.ts";
import { type Difference, differences } from "./difference.ts";
import { type OpenConversation, readRecord } from "./state.ts";

/** Every update with what it changed; a click shows two versions side by side. */
export function History({ open }: { readonly open: OpenConversation }) {
	const updates = [...open.updates.value].reverse();
	const chosen = query.value.get("sequence");
	return (
		<div class="history">
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
				<Notice title="Choose an update to see what it changed" />
			) : (
				<Compared key={chosen} open={open} sequence={BigInt(/^\d+$/.test(chosen) ? chosen : "0")} />
			)}
		</div>
	);
}

/** The record at a sequence beside the one before it. */
function Compared({ open, sequence }: { readonly open: OpenConversation; readonly sequence: bigint }) {
	const found = useSignal<readonly Difference[] | undefined>(undefined);
	const problem = useSignal<Problem | undefined>(undefined);
	const before = open.updates.value.findLast((update) => update.current && update.sequence < sequence)?.sequence;
	useEffect(() => {
		Promise.all([before === undefined ? undefined : readRecord(open.id, before), readRecord(open.id, sequence)]).then(
			([older, newer]) => {
				found.value = differences(older ?? {}, newer ?? {});
			},
			(error: unknown) => {
				problem.value = problemOf(error);
			},
		);
	}, []);
	if (problem.value !== undefined) return <ProblemNotice problem={problem.value} />;
	if (found.value === undefined) return <Notice title="Loading…" />;
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
