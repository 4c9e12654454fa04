import { type ReadonlySignal, signal } from "@preact/signals";
import { type Step, textsOfStep } from "./steps.ts";
import { terminalText } from "./terminal.ts";

/** Milliseconds for which steps are searched before the page may do something else. */
const SLICE = 12;

/**
 * Finds the steps that show some words, in pieces, so that the page stays usable. It remembers what it found of each
 * step: those that arrive later are all that is searched then.
 */
export class StepSearch {
	readonly #hits = signal<ReadonlySet<string> | undefined>(undefined);
	readonly #isLooking = signal(false);
	#words = "";
	/** Whether a step has the words. A step that changes is another object. */
	#known = new WeakMap<Step, boolean>();
	#run = 0;

	/** Ids of the steps that have the words; undefined while nothing is searched. */
	get hits(): ReadonlySignal<ReadonlySet<string> | undefined> {
		return this.#hits;
	}

	get isLooking(): ReadonlySignal<boolean> {
		return this.#isLooking;
	}

	/** Looks for words in steps. */
	look(words: string, steps: readonly Step[]): void {
		const wanted = words.trim().toLowerCase();
		this.#run += 1;
		if (wanted === "") {
			this.#hits.value = undefined;
			this.#isLooking.value = false;
			return;
		}
		if (wanted !== this.#words) this.#known = new WeakMap();
		this.#words = wanted;
		this.#isLooking.value = true;
		this.#go(this.#run, wanted, steps, 0, new Set());
	}

	stop(): void {
		this.#run += 1;
	}

	#go(run: number, wanted: string, steps: readonly Step[], from: number, hits: Set<string>): void {
		const until = performance.now() + SLICE;
		let index = from;
		for (; index < steps.length && performance.now() < until; index += 1) {
			const step = steps[index];
			if (step === undefined) continue;
			const has = this.#known.get(step) ?? hasWords(step, wanted);
			this.#known.set(step, has);
			if (has) hits.add(step.id);
		}
		if (index >= steps.length) {
			this.#hits.value = hits;
			this.#isLooking.value = false;
			return;
		}
		setTimeout(() => {
			if (run === this.#run) this.#go(run, wanted, steps, index, hits);
		});
	}
}

/** Whether a step shows some words. What a terminal shows lacks the escape sequences between its words. */
function hasWords(step: Step, wanted: string): boolean {
	return textsOfStep(step).some((text) => {
		if (text.toLowerCase().includes(wanted)) return true;
		const shown = terminalText(text);
		return shown !== text && shown.toLowerCase().includes(wanted);
	});
}
