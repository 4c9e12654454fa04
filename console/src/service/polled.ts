import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { KEY_REFUSED, type Problem, problemOf } from "./service.ts";
import { signOut } from "./session.ts";

/**
 * Reads a list when the page opens and then at an interval, in milliseconds. A key that is refused signs out.
 *
 * @returns the list, undefined before the first answer; why the last read failed; and what reads it at once
 */
export function usePolled<Item>(read: () => Promise<readonly Item[]>, interval: number) {
	const list = useSignal<readonly Item[] | undefined>(undefined);
	const problem = useSignal<Problem | undefined>(undefined);
	// Number of the last read that was begun, and of the newest one that was answered. Older answers come too late.
	const reads = useRef({ begun: 0, answered: 0 });
	const load = async (): Promise<void> => {
		const { current } = reads;
		current.begun += 1;
		const number = current.begun;
		const isLate = (): boolean => {
			if (number < current.answered) return true;
			current.answered = number;
			return false;
		};
		try {
			const found = await read();
			if (isLate()) return;
			list.value = found;
			problem.value = undefined;
		} catch (error) {
			if (isLate()) return;
			problem.value = problemOf(error);
			if (problem.value.kind === "key") signOut(KEY_REFUSED);
		}
	};
	useEffect(() => {
		void load();
		const timer = setInterval(() => void load(), interval);
		return () => clearInterval(timer);
	}, []);
	return { list, problem, load };
}

/** Number of items that {@link usePolledPages} adds each time. */
const PAGE_SIZE = 20;

/**
 * As {@link usePolled}, for a list whose first items are the newest.
 *
 * @param read returns so many of the first items, and whether there are more
 * @returns also what reads a page more, undefined when there is none
 */
export function usePolledPages<Item>(
	read: (pageSize: number) => Promise<{ readonly items: readonly Item[]; readonly hasMore: boolean }>,
	interval: number,
) {
	const pages = useSignal(1);
	const hasMore = useSignal(false);
	const polled = usePolled(async () => {
		const page = await read(PAGE_SIZE * pages.value);
		hasMore.value = page.hasMore;
		return page.items;
	}, interval);
	const more = (): void => {
		pages.value += 1;
		void polled.load();
	};
	return { ...polled, more: hasMore.value ? more : undefined };
}
