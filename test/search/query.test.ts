import fc from "fast-check";
import { expect, test } from "vitest";
import { ServiceError } from "../../src/errors.ts";
import { indexQuery, isExact, parseQuery, type Term } from "../../src/search/query.ts";

const shown = ({ words, isPrefix }: Term) => words.map(({ text }) => text).join(" ") + (isPrefix ? "*" : "");
const parsed = (text: string) => {
	const { required, excluded } = parseQuery(text);
	return [required.map(shown), excluded.map(shown)];
};

test.each([
	["two Words", [["two", "words"], []]],
	['"an exact phrase" rest', [["an exact phrase", "rest"], []]],
	["pre* -without", [["pre*"], ["without"]]],
	['login -"test page" -fa*', [["login"], ["test page", "fa*"]]],
	["read_file src/app.ts FooBar", [["read file", "src app ts", "foobar"], []]],
	["src/ap*", [["src ap*"], []]],
	["git push --force", [["git", "push", "force"], []]],
	["well-known - & fine", [["well known", "fine"], []]],
	['one"two three"four', [["one", "two three", "four"], []]],
	['"pre* -fix" x', [["pre fix", "x"], []]],
	["登录 登*", [["登 录", "登"], []]],
	["/etc/passwd.d*", [["etc passwd d*"], []]],
	["🚀 -🎉", [["🚀"], ["🎉"]]],
	["🚀* v2🚀*", [["🚀", "v2 🚀"], []]],
	['👍🏽 ❤️ "©  2026"', [["👍", "❤", "© 2026"], []]],
])("the query %j", (text, expected) => {
	expect(parsed(text)).toEqual(expected);
});

test.each([
	["", "query must have a word to look for"],
	[' - "" ', "query must have a word to look for"],
	["-only", "query must have a word to look for"],
	['"open', "query has a quotation mark without a second one"],
	["*", "query may have * only at the end of a word"],
	["*.ts", "query may have * only at the end of a word"],
	["a*b", "query may have * only at the end of a word"],
	["fo+*", "query may have * only at the end of a word"],
	["fo-*", "query may have * only at the end of a word"],
	["a*", "query must have at least 2 characters before *"],
	["/d*", "query must have at least 2 characters before *"],
	["$", "query must have a word to look for"],
	["x -&", "query has a minus sign before something without a word"],
	['x -""', "query has a minus sign before something without a word"],
	["\ud800", "query is not valid Unicode"],
	["x".repeat(1001), "query must have at most 1000 characters"],
	["x ".repeat(33), "query must have at most 32 words and phrases"],
])("the query %j is refused", (text, message) => {
	expect(() => parseQuery(text)).toThrow(new ServiceError("invalid_argument", message));
});

test("any text is a query, or is refused with an error that names it", () => {
	fc.assert(
		fc.property(fc.string({ unit: fc.constantFrom(...'ab"*- _登é\n'), maxLength: 30 }), (text) => {
			try {
				expect(parseQuery(text).required).not.toEqual([]);
			} catch (error) {
				expect(error).toBeInstanceOf(ServiceError);
				expect(String(error)).toMatch(/query (must|may|has|is)/);
			}
		}),
	);
});

test("the index is asked for all words, and excludes only what is one word", () => {
	const terms = (query: ReturnType<typeof indexQuery>) =>
		[query.required, query.excluded].map((list) => list.map(({ word, isPrefix }) => word + (isPrefix ? "*" : "")));
	const of = (text: string) => terms(indexQuery(parseQuery(text)));
	expect(of('read_fi* "a b" a -c -de* -"e f" -登')).toEqual([
		["read", "fi*", "a", "b"],
		["c", "de*"],
	]);
	// Characters are indexed in pairs; a single one begins a pair.
	expect(of("/etc/passwd.d* 🚀 -🎉 -etc/d*")).toEqual([["etc", "passwd", "🚀"], ["🎉"]]);
	expect(of("登录页 面 使read用")).toEqual([["登录", "录页", "面*", "使*", "read", "用*"], []]);
	expect(["a bc* -c", '"a"', "a_b", "登", "a -b_c"].map((text) => isExact(parseQuery(text)))).toEqual([
		...[true, true, false, false, false],
	]);
});
