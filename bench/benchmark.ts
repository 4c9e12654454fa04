import type { Figure } from "./figures.ts";
import type { Settings } from "./settings.ts";

/** A benchmark: prints its progress by `report` and gives its figures. */
export interface Benchmark {
	readonly name: string;
	/** What is measured against what. */
	readonly about: string;
	/** Whether it can measure another checkout's service in place of its yardstick. */
	readonly comparable?: boolean;
	run(settings: Settings, report: (line: string) => void): Promise<Figure[]>;
}
