import type { Figure } from "./figures.ts";
import type { Settings } from "./settings.ts";

/** A benchmark. It reports progress through `report` and returns its figures. */
export interface Benchmark {
	readonly name: string;
	/** What is measured and what it is compared with. */
	readonly about: string;
	/** Whether it can compare with the service of another checkout instead of its yardstick. */
	readonly comparable?: boolean;
	run(settings: Settings, report: (line: string) => void): Promise<Figure[]>;
}
