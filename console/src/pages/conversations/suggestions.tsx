import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { full } from "../../parts/format.ts";
import { reports } from "../../service/service.ts";

/** What conversations are counted by, for the suggestions. The names are those of the filters, too. */
const GROUPS = ["model", "agent_kind", "sender", "owner", "tag_key"] as const;
/** Number of suggestions of each kind: those with the most conversations. */
const MOST = 50;

interface Suggestion {
	readonly filter: string;
	readonly count: bigint;
}

/**
 * Suggests filters with the values that conversations have.
 *
 * @param props.wanted whether to read them; a failure to do so leaves them out until they are wanted again
 */
export function Suggestions({ id, wanted }: { readonly id: string; readonly wanted: boolean }) {
	const all = useSignal<readonly Suggestion[]>([]);
	useEffect(() => {
		if (wanted)
			read().then(
				(suggestions) => {
					all.value = suggestions;
				},
				() => undefined,
			);
	}, [wanted]);
	return (
		<datalist id={id}>
			{all.value.map(({ filter, count }) => (
				<option key={filter} value={filter}>
					{full(count)}
				</option>
			))}
		</datalist>
	);
}

async function read(): Promise<readonly Suggestion[]> {
	const read = await Promise.all(GROUPS.map((groupBy) => reports.countConversations({ groupBy })));
	return read.flatMap(({ counts }, index) =>
		counts
			.filter(({ value }) => value !== "")
			.slice(0, MOST)
			.map(({ value, count }) => ({ filter: `${GROUPS[index]}:${value}`, count })),
	);
}
