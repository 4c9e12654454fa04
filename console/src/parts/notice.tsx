import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { Problem } from "../service/service.ts";

/** Stands in place of content that is not there: it loads, there is none, or it cannot be shown. */
export function Notice({ title, children }: { readonly title: string; readonly children?: ComponentChildren }) {
	return (
		<div class="notice" role="status">
			<h1>{title}</h1>
			{children}
		</div>
	);
}

const TITLES: Readonly<Record<Problem["kind"], string>> = {
	key: "Sign in again",
	scope: "This key may not do that",
	missing: "Not found",
	away: "The service does not answer",
	argument: "This view cannot be shown",
	other: "This cannot be shown",
};

/** Milliseconds after which a service that did not answer is asked again. */
export const RETRY_AFTER = 2_000;
/** Milliseconds after which it is asked again when it failed otherwise. */
const RETRY_FAILURE_AFTER = 10_000;

/** Tries again without a click what the service failed to do. What it refuses stays refused. */
export function useRetry(problem: Problem | undefined, retry: (() => void) | undefined): void {
	useEffect(() => {
		if (retry === undefined || (problem?.kind !== "away" && problem?.kind !== "other")) return;
		const timer = setTimeout(retry, problem.kind === "away" ? RETRY_AFTER : RETRY_FAILURE_AFTER);
		return () => clearTimeout(timer);
	}, [problem]);
}

/** Says what went wrong, and offers to try again. */
export function ProblemNotice({ problem, retry }: { readonly problem: Problem; readonly retry?: () => void }) {
	useRetry(problem, retry);
	return (
		<Notice title={TITLES[problem.kind]}>
			<span>{problem.text}</span>
			{retry && (
				<button type="button" onClick={retry}>
					Try again
				</button>
			)}
		</Notice>
	);
}

/** Says the same in one line, beside what is there already. */
export function ProblemLine({ problem, retry }: { readonly problem: Problem; readonly retry: () => void }) {
	useRetry(problem, retry);
	return (
		<span class="row small" role="status">
			<span class="problem-text">{problem.text}</span>
			<button type="button" onClick={retry}>
				Try again
			</button>
		</span>
	);
}
