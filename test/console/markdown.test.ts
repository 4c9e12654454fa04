import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Block, type Cell, type Inline, parseMarkdown } from "../../console/src/pages/conversation/markdown.ts";

const text = (value: string): Inline => ({ kind: "text", text: value });
const paragraph = (...children: Inline[]): Block => ({ kind: "paragraph", children });
const strong = (...children: Inline[]): Inline => ({ kind: "strong", children });
const emphasis = (...children: Inline[]): Inline => ({ kind: "emphasis", children });
const code = (value: string): Inline => ({ kind: "code", text: value });
const cell = (align: Cell["align"], ...children: Inline[]): Cell => ({ align, children });
const link = (address: string, value: string): Inline => ({ kind: "link", address, children: [text(value)] });
const list = (start: number | undefined, ...items: Block[][]): Block => ({ kind: "list", start, items });

describe("blocks", () => {
	test.each<[string, readonly Block[]]>([
		["one\ntwo\n\nthree", [paragraph(text("one\ntwo")), paragraph(text("three"))]],
		[
			"# One\n### Two *x*\ntext",
			[
				{ kind: "heading", level: 1, children: [text("One")] },
				{ kind: "heading", level: 3, children: [text("Two "), emphasis(text("x"))] },
				paragraph(text("text")),
			],
		],
		["####### no heading", [paragraph(text("####### no heading"))]],
		[
			"a\n```ts\nconst a = 1;\n\n  **b**\n```\nc",
			[paragraph(text("a")), { kind: "code", info: "ts", text: "const a = 1;\n\n  **b**" }, paragraph(text("c"))],
		],
		["````\n```\n````", [{ kind: "code", info: "", text: "```" }]],
		["~~~\nnot closed", [{ kind: "code", info: "", text: "not closed" }]],
		[
			"> a\n> > b\n\nc",
			[
				{ kind: "quote", blocks: [paragraph(text("a")), { kind: "quote", blocks: [paragraph(text("b"))] }] },
				paragraph(text("c")),
			],
		],
		[
			"- a\n- b\n  - c\n  - d\n- e",
			[
				list(
					undefined,
					[paragraph(text("a"))],
					[paragraph(text("b")), list(undefined, [paragraph(text("c"))], [paragraph(text("d"))])],
					[paragraph(text("e"))],
				),
			],
		],
		[
			"3. a\n   more\n4. b\n\ntext",
			[list(3, [paragraph(text("a\nmore"))], [paragraph(text("b"))]), paragraph(text("text"))],
		],
		[
			"1. a\n\n   ```\n   x\n   ```\n2. b",
			[list(1, [paragraph(text("a")), { kind: "code", info: "", text: "x" }], [paragraph(text("b"))])],
		],
		["- a\n\n- b", [list(undefined, [paragraph(text("a"))], [paragraph(text("b"))])]],
		["- a\n* b", [list(undefined, [paragraph(text("a"))]), list(undefined, [paragraph(text("b"))])]],
		["a\n\n---\n\n***", [paragraph(text("a")), { kind: "rule" }, { kind: "rule" }]],
		[
			"| a | b |\n|---|--:|\n| 1 | *2* |",
			[
				{
					kind: "table",
					head: [cell(undefined, text("a")), cell("right", text("b"))],
					rows: [[cell(undefined, text("1")), cell("right", emphasis(text("2")))]],
				},
			],
		],
		["| a |\n|---|\n| 1 | lost |", [{ kind: "code", info: "", text: "| a |\n|---|\n| 1 | lost |" }]],
		["- [x] a\n- [ ] b", [list(undefined, [paragraph(text("☑ "), text("a"))], [paragraph(text("☐ "), text("b"))])]],
	])("%j", (source, blocks) => {
		expect(parseMarkdown(source)).toEqual(blocks);
	});
});

describe("inlines", () => {
	test.each<[string, readonly Inline[]]>([
		[
			"a **b** *c* _d_ __e__",
			[
				text("a "),
				strong(text("b")),
				text(" "),
				emphasis(text("c")),
				text(" "),
				emphasis(text("d")),
				text(" "),
				strong(text("e")),
			],
		],
		["***both***", [emphasis(strong(text("both")))]],
		["**a *b* c**", [strong(text("a "), emphasis(text("b")), text(" c"))]],
		["`a*b*` and ``c`d``", [code("a*b*"), text(" and "), code("c`d")]],
		["2 * 3 * 4, a_b_c, **open", [text("2 * 3 * 4, a_b_c, **open")]],
		["*a **b*", [text("*a *"), emphasis(text("b"))]],
		["~~a~~ [b](c 'd')", [{ kind: "deleted", children: [text("a")] }, text(" "), link('c "d"', "b")]],
		[
			"![a](https://example.com/a.png)",
			[{ kind: "image", address: "https://example.com/a.png", children: [text("a")] }],
		],
		["[a](javascript:alert(1))", [link("javascript:alert(1)", "a")]],
		[
			"<https://example.com> https://example.org",
			[
				link("https://example.com", "https://example.com"),
				text(" "),
				link("https://example.org", "https://example.org"),
			],
		],
		["[a]: https://example.com 'b'", [text("[a]: "), link("https://example.com", "https://example.com"), text(" 'b'")]],
		["\\*no\\* \\`no\\` c:\\dir", [text("*no* `no` c:\\dir")]],
		["`not closed", [text("`not closed")]],
	])("%j", (source, children) => {
		expect(parseMarkdown(source)).toEqual([{ kind: "paragraph", children }]);
	});
});

/** Returns all texts of a structure in their order. */
function textsOf(part: Block | Inline): string[] {
	if ("text" in part) return "info" in part ? [part.info, part.text] : [part.text];
	if ("children" in part) return part.children.flatMap(textsOf);
	if ("blocks" in part) return part.blocks.flatMap(textsOf);
	if ("rows" in part) return [part.head, ...part.rows].flat().flatMap((one) => one.children.flatMap(textsOf));
	if ("items" in part) return part.items.flat().flatMap(textsOf);
	return [];
}

describe("what is no part of the structure stays text", () => {
	test.each([
		"<script>alert(1)</script>",
		"<img src=x onerror=alert(1)>",
		"&lt;b&gt; &#60;b&#62; &amp;",
		"<!-- comment --> <![CDATA[x]]> <?php ?>",
		"<svg/onload=alert(1)>",
	])("%s", (source) => {
		expect(parseMarkdown(source)).toEqual([paragraph(text(source))]);
		expect(parseMarkdown(`- **${source}**`)).toEqual([list(undefined, [paragraph(strong(text(source)))])]);
		expect(parseMarkdown(`# ${source}`)).toEqual([{ kind: "heading", level: 1, children: [text(source)] }]);
		expect(parseMarkdown(`> ${source}`)).toEqual([{ kind: "quote", blocks: [paragraph(text(source))] }]);
		expect(parseMarkdown(`\`\`\`html\n${source}\n\`\`\``)).toEqual([{ kind: "code", info: "html", text: source }]);
		expect(parseMarkdown(`\`${source}\``)).toEqual([paragraph(code(source))]);
	});

	test("any text: the structure's texts are the letters of the source, in their order", () => {
		const piece = fc.constantFrom(
			"*",
			"**",
			"_",
			"`",
			"``",
			"```\n",
			"\n",
			"\n\n",
			"- ",
			"1. ",
			"> ",
			"# ",
			"  ",
			"a",
			"b c",
			"<b>",
			"\\",
			"|",
			"~~~\n",
			"---",
		);
		fc.assert(
			fc.property(fc.array(piece, { maxLength: 60 }), (pieces) => {
				const source = pieces.join("");
				const letters = (value: string): string => value.replace(/[^abc<]/g, "");
				expect(letters(parseMarkdown(source).flatMap(textsOf).join(""))).toBe(letters(source));
			}),
			{ numRuns: 2_000 },
		);
	});

	test.each(["*", "**a", "`", "> ", "- ", "_a ", "\\", "``a", "1. ", "|\n", " "])(
		"many of %j are parsed in proportion to their length",
		(piece) => {
			const source = piece.repeat(200_000);
			expect(letterCount(parseMarkdown(source).flatMap(textsOf).join(""))).toBe(letterCount(source));
		},
	);
});

function letterCount(value: string): number {
	return value.split("a").length;
}
