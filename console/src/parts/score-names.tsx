import { SCORE_NAME } from "../../../src/conversations/read/filter.ts";
import { CRITIC, THUMBS } from "./score.tsx";

interface ScoreNamesProps {
	readonly label: string;
	/** Says what the names are for. */
	readonly title: string;
	readonly names: readonly string[];
	/** Number of names at most. */
	readonly most: number;
	readonly onChange: (names: readonly string[]) => void;
}

/** Takes names of scores. No request tells which names there are, so they are typed. */
export function ScoreNames({ label, title, names, most, onChange }: ScoreNamesProps) {
	const form = most === 1 ? "the name of a score" : `at most ${most} names of scores`;
	return (
		<label class="row small muted">
			{label}
			<input
				key={names.join()}
				type="text"
				class="score-names"
				aria-label={`${title}: ${form}`}
				placeholder="thumbs"
				autocomplete="off"
				list="score-names"
				// Not the value, so that what is typed stays while the page is drawn anew.
				defaultValue={names.join(", ")}
				onInput={(event) => event.currentTarget.setCustomValidity("")}
				onChange={(event) => {
					const input = event.currentTarget;
					const given = new Set(input.value.split(/[\s,]+/).filter(Boolean));
					if (given.size <= most && given.values().every((name) => SCORE_NAME.test(name))) onChange([...given]);
					else {
						input.setCustomValidity(`This must be ${form}, such as tests_passed`);
						input.reportValidity();
					}
				}}
			/>
			<datalist id="score-names">
				{[THUMBS, CRITIC].map((name) => (
					<option key={name} value={name} />
				))}
			</datalist>
		</label>
	);
}
