import { useMemo } from "preact/hooks";
import { blocksOf } from "./text-blocks.ts";

/** Characters beyond which a text is broken into blocks. */
const LONG = 5_000;
/**
 * A text of any length. The time in which browsers break a line grows with the square of its length where it has no
 * space, so a long text becomes blocks, and only those in view are laid out.
 */
export function LongText({ text }: { readonly text: string }) {
	const blocks = useMemo(() => (text.length > LONG ? blocksOf(text) : undefined), [text]);
	if (blocks === undefined) return <>{text}</>;
	return (
		<>
			{blocks.map(({ text: part, lines }, index) => (
				<span key={index} class="text-block" style={{ containIntrinsicBlockSize: `auto ${lines}lh` }}>
					{part}
				</span>
			))}
		</>
	);
}
