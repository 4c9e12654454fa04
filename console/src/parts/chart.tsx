import type { ChartProps } from "./drawn-chart.tsx";
import { loadedLater } from "./loaded-later.tsx";

const Drawn = loadedLater<ChartProps>(() => import("./drawn-chart.tsx"), {
	waiting: null,
	failed: () => <span class="small muted">The chart cannot be loaded now. The table has its numbers.</span>,
});

/**
 * A chart, drawn by code that is loaded with the first one: what stands beside it does not wait for it. A table with the
 * same numbers has to be there.
 */
export function Chart(props: ChartProps) {
	return (
		<div style={{ minHeight: `${props.height}px` }}>
			<Drawn {...props} />
		</div>
	);
}
