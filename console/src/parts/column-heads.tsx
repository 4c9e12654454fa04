interface ColumnHeadsProps {
	/** Titles of the columns. An empty one is that of the column of buttons. */
	readonly titles: readonly string[];
	/** Titles of the columns of numbers, which stand to the right. Default: none. */
	readonly numbers?: ReadonlySet<string>;
}

/** The head of a table. */
export function ColumnHeads({ titles, numbers }: ColumnHeadsProps) {
	return (
		<thead>
			<tr>
				{titles.map((title) => (
					<th key={title} scope="col" class={numbers?.has(title) ? "number" : ""}>
						{title === "" ? <span class="visually-hidden">Action</span> : title}
					</th>
				))}
			</tr>
		</thead>
	);
}
