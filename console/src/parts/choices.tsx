import { useSignal } from "@preact/signals";
import { setQuery } from "../shell/route.ts";
import { BEFORE, dayText, rangeOf, rangeWords } from "./days.ts";

/** What the pages of reports are chosen by. The address has it. */

/** Returns how a group of a report is called. */
export function nameOf(group: string): string {
	return group === "" ? "(none)" : group;
}

/** Earliest day that can be chosen. */
const FIRST_DAY = "1970-01-01";

/** Chooses one of the ranges that are offered, or any days. */
export function RangeChoice(props: {
	readonly name: "range" | "compare";
	readonly label: string;
	readonly value: string;
	readonly offered: readonly string[];
}) {
	const { name, label, value, offered } = props;
	const isOffered = offered.includes(value);
	const [first = "", last = first] = value.split("..");
	const set = (range: string): void =>
		setQuery((next) => {
			for (const parameter of ["at", "of"]) next.delete(parameter);
			if (range === "") next.delete(name);
			else next.set(name, range);
		});
	const { from, to } = rangeOf(value) ?? {};
	return (
		<>
			<label class="row small muted">
				{label}
				<select
					aria-label={label}
					value={isOffered ? value : "days"}
					onChange={(event) => {
						const { value: chosen } = event.currentTarget;
						const start = dayText(from ?? new Date());
						set(
							chosen === "days"
								? `${start}..${dayText(to === undefined ? new Date() : new Date(to.getTime() - 1))}`
								: chosen,
						);
					}}
				>
					{offered.map((range) => (
						<option key={range} value={range}>
							{range === "" ? "nothing" : range === BEFORE ? "the time before" : rangeWords(range)}
						</option>
					))}
					<option value="days">chosen days</option>
				</select>
			</label>
			{!isOffered && <Days key={name} label={label} first={first} last={last} onChange={(range) => set(range)} />}
		</>
	);
}

/** Chooses the first and the last day of a range. */
function Days(props: {
	readonly label: string;
	readonly first: string;
	readonly last: string;
	readonly onChange: (range: string) => void;
}) {
	const { label, first, last, onChange } = props;
	// What is typed stays while it is no range, and while the page is drawn anew.
	const typed = useSignal<readonly [string, string]>([first, last]);
	const isWrong = rangeOf(typed.value.join("..")) === undefined;
	const day = (index: 0 | 1, name: string) => (
		<label class="row small muted">
			{name}
			<input
				type="date"
				aria-label={`${label} ${name}`}
				value={typed.value[index]}
				onChange={(event) => {
					const { value } = event.currentTarget;
					const [from, to] = typed.value;
					typed.value = index === 0 ? [value, to] : [from, value];
					// While a year is typed, the value has one of its digits, then two, or none.
					if (typed.value.some((one) => one !== "" && one < FIRST_DAY)) return;
					if (rangeOf(typed.value.join("..")) !== undefined) onChange(typed.value.join(".."));
				}}
			/>
		</label>
	);
	return (
		<>
			{day(0, "from")}
			{day(1, "to")}
			{isWrong && <span class="problem-text small">These are no days of which the last one follows the first.</span>}
		</>
	);
}

/** Chooses one of some values, which the address then has. */
export function Choice(props: {
	readonly name: string;
	readonly label: string;
	readonly value: string;
	readonly options: ReadonlyMap<string, string>;
}) {
	const { name, label, value, options } = props;
	return (
		<label class="row small muted">
			{label}
			<select
				value={value}
				onChange={(event) => {
					const chosen = event.currentTarget.value;
					setQuery((next) => next.set(name, chosen));
				}}
			>
				{[...options].map(([option, words]) => (
					<option key={option} value={option}>
						{words}
					</option>
				))}
				{!options.has(value) && <option value={value}>{value}</option>}
			</select>
		</label>
	);
}
