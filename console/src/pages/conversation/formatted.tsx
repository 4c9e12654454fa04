import "./markdown.css";
import { createContext } from "preact";
import { useContext, useMemo } from "preact/hooks";
import { useCopy } from "../../parts/copy.ts";
import { LongText } from "../../parts/long-text.tsx";
import { type Block, type Cell, type Inline, parseMarkdown } from "./markdown.ts";

/** How steps are shown: on the page, or as a whole on paper and in a file. */
export interface Showing {
	/** Whether folds are elements of HTML that open without a script, and nothing can be clicked. */
	readonly isStatic: boolean;
	/** Whether a text has what a person looks for, so that its fold opens. */
	readonly opens: (text: string) => boolean;
}

export const ShowingContext = createContext<Showing>({ isStatic: false, opens: () => false });

/** A text that may be Markdown. It becomes elements and texts, never HTML, links or images. */
export function Formatted({ text }: { readonly text: string }) {
	const blocks = useMemo(() => parseMarkdown(text), [text]);
	return (
		<div class="said">
			<Blocks blocks={blocks} />
		</div>
	);
}

/** Copies a text, and says so. There is none on paper and in a file. */
export function CopyButton({ text, what }: { readonly text: string; readonly what: string }) {
	const { said, copy } = useCopy();
	if (useContext(ShowingContext).isStatic) return null;
	return (
		<button type="button" class="copy" title={`Copy ${what}`} aria-label={`Copy ${what}`} onClick={() => copy(text)}>
			<span aria-live="polite">{said === "" ? "copy" : said}</span>
		</button>
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
				<div class="code-block">
					<div class="row small muted">
						<span>{block.info}</span>
						<CopyButton text={block.text} what="the code" />
					</div>
					<pre>
						<LongText text={block.text} />
					</pre>
				</div>
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
		case "table":
			return (
				<div class="scroll" role="region" aria-label="Table" tabIndex={0}>
					<table>
						<thead>
							<tr>{block.head.map((cell) => cellOf("th", cell))}</tr>
						</thead>
						<tbody>
							{block.rows.map((row) => (
								<tr>{row.map((cell) => cellOf("td", cell))}</tr>
							))}
						</tbody>
					</table>
				</div>
			);
		case "rule":
			return <hr />;
	}
}

function cellOf(Name: "th" | "td", { children, align }: Cell) {
	return <Name style={align && { textAlign: align }}>{children.map(inlineOf)}</Name>;
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
		case "deleted":
			return <del>{inline.children.map(inlineOf)}</del>;
		case "break":
			return <br />;
		case "link":
		case "image": {
			const [only] = inline.children;
			const isBare = inline.children.length === 1 && only?.kind === "text" && only.text === inline.address;
			return (
				<span class="link">
					{inline.kind === "image" && <span class="muted">image </span>}
					{inline.children.map(inlineOf)}
					{!isBare && <span class="muted"> ({inline.address})</span>}{" "}
					<CopyButton text={inline.address} what="the address" />
				</span>
			);
		}
	}
}
