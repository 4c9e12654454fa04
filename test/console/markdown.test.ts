import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Block, type Cell, type Inline, parseMarkdown } from "../../console/src/pages/conversation/markdown.ts";

/** Writes a structure as HTML, so that it can be compared in one line. */
function html(part: Block | Inline): string {
	switch (part.kind) {
		case "text":
			return escaped(part.text);
		case "code":
			return "info" in part
				? `<pre info="${part.info}">${escaped(part.text)}</pre>`
				: `<code>${escaped(part.text)}</code>`;
		case "heading":
			return `<h${part.level}>${all(part.children)}</h${part.level}>`;
		case "link":
		case "image":
			return `<${part.kind} to=${JSON.stringify(part.address)}>${all(part.children)}</${part.kind}>`;
		case "quote":
			return `<quote>${all(part.blocks)}</quote>`;
		case "list":
			return `<list${part.start === undefined ? "" : ` from=${part.start}`}>${part.items.map((item) => `<item>${all(item)}</item>`).join("")}</list>`;
		case "table":
			return `<table>${[part.head, ...part.rows].map((row) => `<row>${row.map(cell).join("")}</row>`).join("")}</table>`;
		case "rule":
		case "break":
			return `<${part.kind}>`;
		default:
			return `<${part.kind}>${all(part.children)}</${part.kind}>`;
	}
}

const escaped = (text: string) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const all = (parts: readonly (Block | Inline)[]): string => parts.map(html).join("");
const cell = ({ align, children }: Cell) => `<cell${align === undefined ? "" : ` ${align}`}>${all(children)}</cell>`;
const paragraph = (inner: string) => `<paragraph>${inner}</paragraph>`;
const item = (inner: string) => `<item>${paragraph(inner)}</item>`;

test.each([
	["one\ntwo\n\nthree", `${paragraph("one\ntwo")}${paragraph("three")}`],
	["# One\n### Two *x*\ntext", `<h1>One</h1><h3>Two <emphasis>x</emphasis></h3>${paragraph("text")}`],
	["####### no heading", paragraph("####### no heading")],
	[
		"a\n```ts\nconst a = 1;\n\n  **b**\n```\nc",
		`${paragraph("a")}<pre info="ts">const a = 1;\n\n  **b**</pre>${paragraph("c")}`,
	],
	["````\n```\n````", '<pre info="">```</pre>'],
	["~~~\nnot closed", '<pre info="">not closed</pre>'],
	["> a\n> > b\n\nc", `<quote>${paragraph("a")}<quote>${paragraph("b")}</quote></quote>${paragraph("c")}`],
	[
		"- a\n- b\n  - c\n  - d\n- e",
		`<list>${item("a")}<item>${paragraph("b")}<list>${item("c")}${item("d")}</list></item>${item("e")}</list>`,
	],
	["3. a\n   more\n4. b\n\ntext", `<list from=3>${item("a\nmore")}${item("b")}</list>${paragraph("text")}`],
	[
		"1. a\n\n   ```\n   x\n   ```\n2. b",
		`<list from=1><item>${paragraph("a")}<pre info="">x</pre></item>${item("b")}</list>`,
	],
	["- a\n\n- b", `<list>${item("a")}${item("b")}</list>`],
	["- a\n* b", `<list>${item("a")}</list><list>${item("b")}</list>`],
	["a\n\n---\n\n***", `${paragraph("a")}<rule><rule>`],
	[
		"| a | b |\n|---|--:|\n| 1 | *2* |",
		"<table><row><cell>a</cell><cell right>b</cell></row><row><cell>1</cell><cell right><emphasis>2</emphasis></cell></row></table>",
	],
	["| a |\n|---|\n| 1 | lost |", '<pre info="">| a |\n|---|\n| 1 | lost |</pre>'],
	["- [x] a\n- [ ] b", `<list>${item("☑ a")}${item("☐ b")}</list>`],
	[
		"a **b** *c* _d_ __e__",
		paragraph("a <strong>b</strong> <emphasis>c</emphasis> <emphasis>d</emphasis> <strong>e</strong>"),
	],
	["***both***", paragraph("<emphasis><strong>both</strong></emphasis>")],
	["**a *b* c**", paragraph("<strong>a <emphasis>b</emphasis> c</strong>")],
	["`a*b*` and ``c`d``", paragraph("<code>a*b*</code> and <code>c`d</code>")],
	["2 * 3 * 4, a_b_c, **open", paragraph("2 * 3 * 4, a_b_c, **open")],
	["*a **b*", paragraph("*a *<emphasis>b</emphasis>")],
	["~~a~~ [b](c 'd')", paragraph('<deleted>a</deleted> <link to="c \\"d\\"">b</link>')],
	["![a](https://example.com/a.png)", paragraph('<image to="https://example.com/a.png">a</image>')],
	["[a](javascript:alert(1))", paragraph('<link to="javascript:alert(1)">a</link>')],
	[
		"<https://example.com> https://example.org",
		paragraph(
			'<link to="https://example.com">https://example.com</link> <link to="https://example.org">https://example.org</link>',
		),
	],
	["[a]: https://example.com 'b'", paragraph("[a]: <link to=\"https://example.com\">https://example.com</link> 'b'")],
	["\\*no\\* \\`no\\` c:\\dir", paragraph("*no* `no` c:\\dir")],
	["`not closed", paragraph("`not closed")],
])("%j", (source, structure) => {
	expect(all(parseMarkdown(source))).toBe(structure);
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
		const text = escaped(source);
		for (const [around, structure] of [
			[source, paragraph(text)],
			[`- **${source}**`, `<list>${item(`<strong>${text}</strong>`)}</list>`],
			[`# ${source}`, `<h1>${text}</h1>`],
			[`> ${source}`, `<quote>${paragraph(text)}</quote>`],
			[`\`\`\`html\n${source}\n\`\`\``, `<pre info="html">${text}</pre>`],
			[`\`${source}\``, paragraph(`<code>${text}</code>`)],
		] as const)
			expect(all(parseMarkdown(around))).toBe(structure);
	});

	test("any text: the structure's texts are the letters of the source, in their order", () => {
		const piece = fc.constantFrom(
			...["*", "**", "_", "`", "``", "```\n", "\n", "\n\n", "- ", "1. ", "> ", "# ", "  ", "a", "b c", "<b>", "\\"],
			...["|", "~~~\n", "---"],
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
