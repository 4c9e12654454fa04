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

/** Says what went wrong, and offers to try again. A service that is away is tried again without a click. */
export function ProblemNotice({ problem, retry }: { readonly problem: Problem; readonly retry?: () => void }) {
	useEffect(() => {
		if (problem.kind !== "away" || retry === undefined) return;
		const timer = setTimeout(retry, RETRY_AFTER);
		return () => clearTimeout(timer);
	}, [problem]);
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
