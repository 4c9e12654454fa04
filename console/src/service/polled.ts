import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
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
	const load = async (): Promise<void> => {
		try {
			list.value = await read();
			problem.value = undefined;
		} catch (error) {
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
