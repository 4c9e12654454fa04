import { useLayoutEffect } from "preact/hooks";
import { matchesIn, type TextRange } from "../../../../src/search/match.ts";
import { parseQuery, type TextQuery } from "../../../../src/search/query.ts";

/** What a search has found in a step: its words are marked, and the first one is brought into view. */

/** Name of the marks in the style sheet. */
const NAME = "found";
/** Elements whose texts do not continue those of their neighbours. */
const BLOCKS = ".text-block, p, li, pre, h3, h4, header, strong, button, dt, dd, th, td, .subject, .diff-text";
/** Number of frames during which a place must stay before the page scrolls to it, because rows are still measured. */
const STEADY_FRAMES = 5;

/** Returns the query of an address; undefined if there is none, or it is not valid. */
export function queryOf(text: string | null): TextQuery | undefined {
	try {
		return text === null ? undefined : parseQuery(text);
	} catch {
		return undefined;
	}
}

/** Returns what of a text a query matches, in UTF-16 code units. */
export function foundIn(query: TextQuery, text: string): readonly TextRange[] {
	const found = matchesIn(query, text);
	// The words of a text within JSON may stand behind the escape of a line's end.
	return found.length > 0 ? found : matchesIn(query, text.replace(/\\[nrt"]/g, "  "));
}

/**
 * Marks the words of a query in an element, and scrolls to the first one.
 *
 * @param query undefined if nothing is marked
 * @param state changes whenever the element has other texts, or another place
 */
export function useFound(
	element: { readonly current: HTMLElement | null },
	query: TextQuery | undefined,
	state: unknown,
): void {
	useLayoutEffect(() => {
		const { current } = element;
		// Not all browsers have marks that leave the elements as they are.
		if (current === null || query === undefined || CSS.highlights === undefined) return;
		const ranges = rangesIn(current, query);
		const own = new Highlight(...ranges);
		CSS.highlights.set(NAME, own);
		const stop = ranges[0] === undefined ? () => undefined : reveal(ranges[0]);
		return () => {
			stop();
			// Another step may have set its own before this one ends.
			if (CSS.highlights.get(NAME) === own) CSS.highlights.delete(NAME);
		};
	}, [query, state]);
}

function rangesIn(element: HTMLElement, query: TextQuery): Range[] {
	const nodes: { readonly node: Node; readonly start: number; readonly end: number }[] = [];
	let text = "";
	let block: Element | null = null;
	const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
	for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
		const own = node.parentElement?.closest(BLOCKS) ?? null;
		if (own !== block) text += "\n";
		block = own;
		const start = text.length;
		text += node.nodeValue ?? "";
		nodes.push({ node, start, end: text.length });
	}
	return foundIn(query, text).flatMap(({ start, end }) => {
		const first = nodes.find((one) => start < one.end);
		const last = nodes.find((one) => end <= one.end);
		if (first === undefined || last === undefined) return [];
		const range = document.createRange();
		range.setStart(first.node, Math.max(start - first.start, 0));
		range.setEnd(last.node, Math.max(end - last.start, 0));
		return [range];
	});
}

/**
 * Scrolls to a range when it has come to rest out of view, unless the person scrolls before.
 *
 * @returns a function that ends this
 */
function reveal(range: Range): () => void {
	const ended = new AbortController();
	const end = () => ended.abort();
	for (const name of ["wheel", "touchmove", "keydown"]) addEventListener(name, end, { signal: ended.signal });
	let before = Number.NaN;
	let steady = 0;
	const look = (): void => {
		if (ended.signal.aborted) return;
		const { top, bottom } = range.getBoundingClientRect();
		steady = top === before ? steady + 1 : 0;
		before = top;
		if (steady < STEADY_FRAMES) {
			requestAnimationFrame(look);
			return;
		}
		const covered = document.querySelector("header.top")?.getBoundingClientRect().bottom ?? 0;
		// With some of what follows.
		if (top < covered || bottom > innerHeight * 0.8) scrollBy({ top: top - innerHeight / 3 });
		end();
	};
	requestAnimationFrame(look);
	return end;
}
