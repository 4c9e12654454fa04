import { ServiceError } from "../errors.ts";
import { failureOf } from "./failure.ts";
import type { Calls } from "./protocol.ts";
import type { ThreadObserver, WorkerThreadOptions } from "./worker-thread.ts";

/** Name of the calling thread, as the observer sees it. */
const HERE = "main";

/**
 * Returns calls with the same types and errors as those to a worker thread, which run in the calling thread at once.
 */
export function localCalls<Methods extends Readonly<Record<string, (argument: never) => unknown>>>(
	methods: Methods,
	options: Pick<WorkerThreadOptions, "owner" | "toError" | "log"> & { readonly observer: ThreadObserver | undefined },
): Calls<Methods> {
	const named: Record<string, { call(argument: unknown): unknown }["call"]> = methods;
	const entries = Object.entries(named).map(([name, method]) => [
		name,
		async (argument: unknown) => {
			const ended = options.observer?.onCall(HERE, name);
			try {
				const value = method(argument);
				ended?.(undefined);
				return value;
			} catch (thrown) {
				const error = thrown instanceof ServiceError ? thrown : options.toError(failureOf(thrown), "call");
				if (error !== thrown) options.log.error({ err: error, operation: name, count: 1 }, `${options.owner} failed`);
				ended?.(error);
				throw error;
			}
		},
	]);
	return Object.fromEntries(entries) as Calls<Methods>;
}
