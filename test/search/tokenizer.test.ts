import fc from "fast-check";
import { expect, test } from "vitest";
import { fold, indexWords, wordsOf } from "../../src/search/tokenizer.ts";

/** Returns the words of a text, each with its parts. */
const words = (text: string) =>
	wordsOf(text).map(({ text: word, parts }) =>
		parts === undefined ? word : [word, ...parts.map((part) => part.text)],
	);

test.each([
	["Read the FILE, now!", ["read", "the", "file", "now"]],
	["naïve Straße ŁÓDŹ", ["naive", "strasse", "lodz"]],
	["ΟΔΟΣ οδός", ["οδοσ", "οδοσ"]],
	["İstanbul ıstanbul", ["istanbul", "istanbul"]],
	["ＦＵＬＬ　ｗｉｄｔｈ ﬁne ①", ["full", "width", "fine", "1"]],
	["read_file(src/app.ts:12)", ["read", "file", "src", "app", "ts", "12"]],
	[
		"FooBar HTTPServer fooBar2Baz",
		[
			["foobar", "foo", "bar"],
			["httpserver", "http", "server"],
			["foobar2baz", "foo", "bar2", "baz"],
		],
	],
	["sha256 7c9e6679", ["sha256", "7c9e6679"]],
	["登录页", ["登", "录", "页"]],
	["ログイン", ["ロ", "グ", "イ", "ン"]],
	["ｶﾞガが", ["ガ", "ガ", "が"]],
	["ภาษา", ["ภ", "า", "ษ", "า"]],
	["使用read_file工具", ["使", "用", "read", "file", "工", "具"]],
	["हिन्दी 한국어", ["हिन्दी", "한국어"]],
	["שָׁלוֹם שלום", ["שלום", "שלום"]],
	["مَرْحَبًا مرحبا قُرْآنٌ", ["مرحبا", "مرحبا", "قران"]],
	["ܫܠܳܡܳܐ", ["ܫܠܡܐ"]],
	["коро҄ль ёлка", ["король", "елка"]],
	["co\u00adoper\u00adation co\u2060operation \ufeffcooperation", ["cooperation", "cooperation", "cooperation"]],
	["می\u200cخواهم می\u200dخواهم", ["میخواهم", "میخواهم"]],
	["one\u200btwo three\u00ad-four", ["one", "two", "three", "four"]],
	["กิน กน", ["กิ", "น", "ก", "น"]],
	["!? — $ = \ud800", []],
	["Done✅v2 😀, →", ["done", "✅", "v2", "😀", "→"]],
	["👍🏽 ❤️ 1️⃣ 👩\u200d👧", ["👍", "❤", "1", "👩", "👧"]],
])("the words of %j", (text, expected) => {
	expect(words(text)).toEqual(expected);
});

test("characters are indexed with the next one, and all other words with their parts", () => {
	expect([...indexWords(wordsOf("登录页 面 FooBar foo"))]).toEqual([
		"登录",
		"录页",
		"页",
		"面",
		"foobar",
		"foo",
		"bar",
	]);
});

test("a long word is cut, and the parts of a long name are not indexed", () => {
	expect(words("a".repeat(100))).toEqual(["a".repeat(64)]);
	expect(words(`Ab${"c".repeat(39)}D`)).toEqual([`ab${"c".repeat(39)}d`]);
	// Not within a pair of surrogates: U+10400 becomes U+10428, which has two UTF-16 code units.
	expect(words(`a${"\u{10400}".repeat(40)}`)).toEqual([`a${"\u{10428}".repeat(31)}`]);
});

test("words stand where they say, in their order, and consist of letters, digits and marks, or are one symbol", () => {
	fc.assert(
		fc.property(fc.string({ unit: "binary", maxLength: 200 }), (text) => {
			let end = 0;
			for (const word of wordsOf(text)) {
				expect(word.start).toBeGreaterThanOrEqual(end);
				expect(word.end).toBeGreaterThan(word.start);
				expect(word.text).toMatch(word.isSymbol ? /^\p{S}$/u : /^[\p{L}\p{N}\p{M}]+$/u);
				if (!word.isSymbol) expect(fold(text.slice(word.start, word.end)).startsWith(word.text)).toBe(true);
				end = word.end;
			}
			expect(end).toBeLessThanOrEqual(text.length);
		}),
	);
});

test("case and accents do not change the words of a text, nor does folding twice", () => {
	fc.assert(
		fc.property(fc.string({ unit: fc.constantFrom(..."aZéÅßñ9ΩЙ登"), maxLength: 20 }), (text) => {
			const plain = wordsOf(text).map((word) => word.text);
			expect(wordsOf(text.toUpperCase()).map((word) => word.text)).toEqual(plain);
			expect(wordsOf(text.normalize("NFD")).map((word) => word.text)).toEqual(plain);
			expect(plain.map(fold)).toEqual(plain);
		}),
	);
});
