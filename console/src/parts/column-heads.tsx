/** The head of a table, with the titles of its columns. Those of numbers stand to the right. */
export function ColumnHeads({
	titles,
	numbers,
}: {
	readonly titles: readonly string[];
	readonly numbers: ReadonlySet<string>;
}) {
	return (
		<thead>
			<tr>
				{titles.map((title) => (
					<th key={title} scope="col" class={numbers.has(title) ? "number" : ""}>
						{title}
					</th>
				))}
			</tr>
		</thead>
	);
}
