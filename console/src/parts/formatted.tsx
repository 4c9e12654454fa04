import "./formatted.css";
import { useMemo } from "preact/hooks";
import { LongText } from "./long-text.tsx";
import { type Block, type Inline, parseMarkdown } from "./markdown.ts";

/** Characters beyond which a text is shown as it is. */
const MOST = 200_000;

/** A text that may be Markdown. It becomes elements and texts, never HTML, links or images. */
export function Formatted({ text }: { readonly text: string }) {
	const blocks = useMemo(() => (text.length > MOST ? undefined : parseMarkdown(text)), [text]);
	if (blocks === undefined)
		return (
			<p class="said">
				<LongText text={text} />
			</p>
		);
	return (
		<div class="said">
			<Blocks blocks={blocks} />
		</div>
	);
}

// Blocks and inlines have no identity but their place.
function Blocks({ blocks }: { readonly blocks: readonly Block[] }) {
	return <>{blocks.map(elementOf)}</>;
}

function elementOf(block: Block) {
	switch (block.kind) {
		case "paragraph":
			return <p>{block.children.map(inlineOf)}</p>;
		case "heading":
			return block.level <= 2 ? <h3>{block.children.map(inlineOf)}</h3> : <h4>{block.children.map(inlineOf)}</h4>;
		case "code":
			return (
				<pre>
					{block.info !== "" && <span class="info">{`${block.info}\n`}</span>}
					<LongText text={block.text} />
				</pre>
			);
		case "quote":
			return (
				<blockquote>
					<Blocks blocks={block.blocks} />
				</blockquote>
			);
		case "list": {
			const items = block.items.map((item) => <li>{<Blocks blocks={item} />}</li>);
			return block.start === undefined ? <ul>{items}</ul> : <ol start={block.start}>{items}</ol>;
		}
		case "rule":
			return <hr />;
	}
}

function inlineOf(inline: Inline) {
	switch (inline.kind) {
		case "text":
			return <LongText text={inline.text} />;
		case "code":
			return (
				<code>
					<LongText text={inline.text} />
				</code>
			);
		case "strong":
			return <strong>{inline.children.map(inlineOf)}</strong>;
		case "emphasis":
			return <em>{inline.children.map(inlineOf)}</em>;
	}
}
