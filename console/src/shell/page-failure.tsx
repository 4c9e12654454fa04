import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Notice } from "../parts/notice.tsx";
import { BASE_URL } from "../service/service.ts";

/** Number of times that the tab has reloaded itself since a page was shown, in the session storage. */
const RELOADS = "reloads";
/** Milliseconds until a page is loaded again; twice as many after each reload, up to the limit. */
const FIRST_WAIT = 2_000;
const LONGEST_WAIT = 600_000;

/**
 * Says that the files of a page cannot be loaded, and reloads the console when the service answers: it may have been
 * away, or upgraded to other files.
 */
export function MissingPage({ error }: { readonly error: unknown }) {
	const isAway = useSignal(false);
	useEffect(() => {
		const reloads = Number(sessionStorage.getItem(RELOADS) ?? 0);
		let timer: ReturnType<typeof setTimeout>;
		const look = async (): Promise<void> => {
			const answers = await fetch(`${BASE_URL}/`, { cache: "no-store" }).then(
				({ ok }) => ok,
				() => false,
			);
			isAway.value = !answers;
			if (answers) {
				sessionStorage.setItem(RELOADS, String(reloads + 1));
				location.reload();
			} else timer = setTimeout(() => void look(), FIRST_WAIT);
		};
		timer = setTimeout(() => void look(), Math.min(FIRST_WAIT * 2 ** reloads, LONGEST_WAIT));
		return () => clearTimeout(timer);
	}, []);
	return (
		<Notice title={isAway.value ? "The service does not answer" : "This page cannot be loaded"}>
			<span>
				{isAway.value ? "The page is loaded when the service is back." : "The page is loaded again in a moment."}
			</span>
			<span class="small muted">{wordsOf(error)}</span>
			<ReloadButton />
		</Notice>
	);
}

/** Notes that a page is there, so that the next failure is met at once. */
export function pageIsThere(): void {
	sessionStorage.removeItem(RELOADS);
}

/** Says that an error in the console ended a page. */
export function BrokenPage({ error }: { readonly error: unknown }) {
	return (
		<Notice title="This page cannot be shown">
			<span>An error occurred in the console: {wordsOf(error)}</span>
			<ReloadButton />
		</Notice>
	);
}

function ReloadButton() {
	return (
		<button type="button" onClick={() => location.reload()}>
			Load the console again
		</button>
	);
}

function wordsOf(error: unknown): string {
	return error instanceof Error ? error.message : String(error);
}
