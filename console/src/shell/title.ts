import { useEffect } from "preact/hooks";

/** What stands behind the title of each page, and alone on the list. */
const NAME = "Conversations";

/**
 * Names the page in the browser's tab and history.
 *
 * @param title undefined for the name alone
 */
export function useTitle(title: string | undefined): void {
	useEffect(() => {
		document.title = title === undefined ? NAME : `${title} · ${NAME}`;
	}, [title]);
}
