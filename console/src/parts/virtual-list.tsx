import { signal } from "@preact/signals";
import { observeWindowOffset, observeWindowRect, Virtualizer, windowScroll } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";

interface VirtualListProps<Item> {
	/** The items of the rows. Another array counts as other items. */
	readonly items: readonly Item[];
	/** Height of a row in pixels before it has been measured. */
	readonly estimate: number;
	readonly keyOf: (item: Item) => string;
	readonly render: (item: Item, index: number) => ComponentChildren;
	/** Called when the end of the list comes near. */
	readonly onEnd?: () => void;
	/** Role of the box around the rows, if the list is a part of a table. */
	readonly role?: "rowgroup";
	/** Index of the row that is kept in view. */
	readonly focus?: number | undefined;
	/** Pixels by which the page is scrolled at first; undefined if it stays as it is. */
	readonly scrolled?: number;
	/** Whether that row is also kept in view while the items change. */
	readonly follows?: boolean;
}

/** Shows only the rows of a long list that are in view. The page itself scrolls. */
export function VirtualList<Item>(props: VirtualListProps<Item>) {
	const { items: all, estimate, keyOf, render, onEnd, role, focus, follows = false, scrolled } = props;
	const count = all.length;
	// The virtualizer computes the places of all rows anew when it gets another function.
	const getItemKey = useMemo(() => (index: number) => keyAt(all, index, keyOf), [all]);
	const box = useRef<HTMLDivElement>(null);
	const version = useMemo(() => signal(0), []);
	const virtualizer = useMemo(
		() =>
			new Virtualizer<Window, Element>({
				count: 0,
				getScrollElement: () => window,
				estimateSize: () => estimate,
				observeElementRect: observeWindowRect,
				observeElementOffset: observeWindowOffset,
				scrollToFn: windowScroll,
				// It scrolls there when it is shown first.
				initialOffset: () => scrolled ?? window.scrollY,
				overscan: 8,
				onChange: () => {
					version.value += 1;
				},
			}),
		[],
	);
	virtualizer.setOptions({
		...virtualizer.options,
		count,
		getItemKey,
		scrollMargin: box.current?.offsetTop ?? 0,
	});
	useEffect(() => virtualizer._didMount(), []);
	useLayoutEffect(() => virtualizer._willUpdate());
	useEffect(() => {
		if (focus === undefined) {
			// The person who scrolls away from a row that is being brought into view goes on.
			virtualizer.cancelScroll();
			return;
		}
		// The header of the page covers the rows below it.
		const scrollPaddingStart = document.querySelector<HTMLElement>("header.top")?.offsetHeight ?? 0;
		virtualizer.setOptions({ ...virtualizer.options, scrollPaddingStart });
		virtualizer.scrollToIndex(focus, { align: "auto" });
	}, [focus, follows, follows && all]);
	void version.value;
	const items = virtualizer.getVirtualItems();
	const last = items.at(-1);
	useEffect(() => {
		if (last !== undefined && last.index >= count - 20) onEnd?.();
	}, [last?.index, count]);
	const margin = virtualizer.options.scrollMargin;
	return (
		<div ref={box} role={role} style={{ position: "relative", height: `${virtualizer.getTotalSize()}px` }}>
			{items.map(({ index, key, start }) => (
				<div
					key={key}
					role={role && "presentation"}
					data-index={index}
					ref={virtualizer.measureElement}
					style={{ position: "absolute", top: 0, left: 0, right: 0, transform: `translateY(${start - margin}px)` }}
				>
					{rowAt(all, index, render)}
				</div>
			))}
		</div>
	);
}

function keyAt<Item>(items: readonly Item[], index: number, keyOf: (item: Item) => string): string {
	const item = items[index];
	return item === undefined ? String(index) : keyOf(item);
}

function rowAt<Item>(
	items: readonly Item[],
	index: number,
	render: VirtualListProps<Item>["render"],
): ComponentChildren {
	const item = items[index];
	return item === undefined ? null : render(item, index);
}
