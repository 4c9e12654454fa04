import { Lexer, type Token, Tokenizer, type Tokens } from "marked";

/**
 * The structure of a text in Markdown. It holds only texts, so that showing it cannot run or fetch anything: HTML stays
 * the text that it is, and links and images are texts with an address.
 */

/** A part of a line. */
export type Inline =
	| { readonly kind: "text" | "code"; readonly text: string }
	| { readonly kind: "strong" | "emphasis" | "deleted"; readonly children: readonly Inline[] }
	/** `address`: what it leads to, whatever that is. Nothing follows it. */
	| { readonly kind: "link" | "image"; readonly address: string; readonly children: readonly Inline[] }
	| { readonly kind: "break" };

/** A part of a text that begins on its own line. */
export type Block =
	| { readonly kind: "paragraph"; readonly children: readonly Inline[] }
	| { readonly kind: "heading"; readonly level: number; readonly children: readonly Inline[] }
	/** `info` is what stands behind the opening fence, such as a language. */
	| { readonly kind: "code"; readonly info: string; readonly text: string }
	| { readonly kind: "quote"; readonly blocks: readonly Block[] }
	| { readonly kind: "list"; readonly start: number | undefined; readonly items: readonly (readonly Block[])[] }
	| { readonly kind: "table"; readonly head: readonly Cell[]; readonly rows: readonly (readonly Cell[])[] }
	| { readonly kind: "rule" };

export interface Cell {
	readonly children: readonly Inline[];
	readonly align: "left" | "center" | "right" | undefined;
}

/** Characters beyond which a text is no structure. */
const MOST = 100_000;
/** Quotes, lists, bold and italic that are nested deeper are text. */
const MAX_DEPTH = 16;
/** A line with more marks of quotes and lists than these at its start. */
const TOO_DEEP = /^[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]*){17}/m;
/** Characters up to which a paragraph has bold, italic and links: the time to find them grows with its square. */
const MAX_PARAGRAPH = 2_000;

/** A lexer that takes time in proportion to the length of a text. */
class BoundedLexer extends Lexer {
	override inline(src: string, tokens: Token[] = []): Token[] {
		if (src.length <= MAX_PARAGRAPH) return super.inline(src, tokens);
		tokens.push({ type: "text", raw: src, text: src });
		return tokens;
	}
}

/** What is no definition of a link for the reader: it is text, so that nothing that was written is missing. */
class VisibleTokenizer extends Tokenizer {
	override def(): undefined {
		return undefined;
	}
}

/** Returns the structure of a text; a single paragraph if it is too long or nested too deep to be one. */
export function parseMarkdown(text: string): readonly Block[] {
	if (text.length > MOST || TOO_DEEP.test(text)) return [{ kind: "paragraph", children: [{ kind: "text", text }] }];
	return blocksOf(new BoundedLexer({ gfm: true, tokenizer: new VisibleTokenizer() }).lex(text), 0);
}

function blocksOf(tokens: readonly Token[], depth: number): readonly Block[] {
	const blocks: Block[] = [];
	for (const token of tokens) {
		const block = blockOf(token, depth);
		if (block !== undefined) blocks.push(block);
	}
	return blocks;
}

function blockOf(token: Token, depth: number): Block | undefined {
	if (depth > MAX_DEPTH) return { kind: "paragraph", children: [{ kind: "text", text: token.raw }] };
	if (isToken<Tokens.Heading>(token, "heading"))
		return { kind: "heading", level: token.depth, children: inlinesOf(token.tokens, depth) };
	if (isToken<Tokens.Code>(token, "code")) return { kind: "code", info: token.lang ?? "", text: token.text };
	if (isToken<Tokens.Blockquote>(token, "blockquote"))
		return { kind: "quote", blocks: blocksOf(token.tokens, depth + 1) };
	if (isToken<Tokens.List>(token, "list")) {
		const items = token.items.map((item) => itemOf(item, depth + 1));
		return { kind: "list", start: token.ordered ? Number(token.start) : undefined, items };
	}
	if (isToken<Tokens.Table>(token, "table")) {
		const cell = ({ tokens, align }: Tokens.TableCell): Cell => ({
			children: inlinesOf(tokens, depth),
			align: align ?? undefined,
		});
		// Cells beyond those of the head are left out of a table.
		if (!isWhole(token)) return { kind: "code", info: "", text: token.raw };
		return { kind: "table", head: token.header.map(cell), rows: token.rows.map((row) => row.map(cell)) };
	}
	if (token.type === "hr") return { kind: "rule" };
	if (token.type === "space") return undefined;
	const children = "tokens" in token && token.tokens !== undefined ? inlinesOf(token.tokens, depth) : [plain(token)];
	return { kind: "paragraph", children };
}

/** Whether the cells of a table have all that was written. */
function isWhole({ raw, header, rows }: Tokens.Table): boolean {
	const lettersOf = (text: string): string => text.replace(/[\s|:\\-]/g, "");
	return (
		lettersOf(raw) ===
		lettersOf(
			[header, ...rows]
				.flat()
				.map(({ text }) => text)
				.join(""),
		)
	);
}

/** Returns the blocks of an item. The box of one that can be ticked off stands before its text. */
function itemOf({ tokens, task, checked }: Tokens.ListItem, depth: number): readonly Block[] {
	const blocks = blocksOf(
		tokens.filter(({ type }) => type !== "checkbox"),
		depth,
	);
	if (!task) return blocks;
	const [first, ...rest] = blocks;
	const box: Inline = { kind: "text", text: checked ? "☑ " : "☐ " };
	if (first?.kind !== "paragraph") return [{ kind: "paragraph", children: [box] }, ...blocks];
	return [{ ...first, children: [box, ...first.children.filter(({ kind }) => kind !== "break")] }, ...rest];
}

function inlinesOf(tokens: readonly Token[], depth: number): readonly Inline[] {
	const inlines: Inline[] = [];
	for (const token of tokens) {
		const inline = inlineOf(token, depth);
		const last = inlines.at(-1);
		if (inline.kind === "text" && last?.kind === "text")
			inlines[inlines.length - 1] = { kind: "text", text: last.text + inline.text };
		else inlines.push(inline);
	}
	return inlines;
}

function inlineOf(token: Token, depth: number): Inline {
	if (depth > MAX_DEPTH) return plain(token);
	const inner = (): readonly Inline[] => inlinesOf("tokens" in token ? (token.tokens ?? []) : [], depth + 1);
	if (isToken<Tokens.Strong>(token, "strong")) return { kind: "strong", children: inner() };
	if (isToken<Tokens.Em>(token, "em")) return { kind: "emphasis", children: inner() };
	if (isToken<Tokens.Del>(token, "del")) return { kind: "deleted", children: inner() };
	if (isToken<Tokens.Codespan>(token, "codespan")) return { kind: "code", text: token.text };
	if (isToken<Tokens.Link>(token, "link")) return { kind: "link", address: addressOf(token), children: inner() };
	if (isToken<Tokens.Image>(token, "image"))
		return { kind: "image", address: addressOf(token), children: [{ kind: "text", text: token.text }] };
	if (token.type === "br") return { kind: "break" };
	if (isToken<Tokens.Escape>(token, "escape")) return { kind: "text", text: token.text };
	return plain(token);
}

/** Returns the address of a link with its title, so that nothing that was written is hidden. */
function addressOf({ href, title }: Tokens.Link | Tokens.Image): string {
	return title ? `${href} "${title}"` : href;
}

function plain(token: Token): Inline {
	return { kind: "text", text: token.raw };
}

function isToken<Kind extends Token>(token: Token, type: Kind["type"]): token is Kind {
	return token.type === type;
}
