import fc from "fast-check";
import { expect, test } from "vitest";
import { matchDocument, type SearchText } from "../../src/search/match.ts";
import { parseQuery } from "../../src/search/query.ts";

/** Returns the snippet of a message, with its matches in brackets. */
function marked(query: string, ...texts: readonly (string | SearchText)[]): string | undefined {
	const documents = texts.map((text) => (typeof text === "string" ? { field: "message" as const, text } : text));
	const found = matchDocument(parseQuery(query), documents);
	if (found === undefined) return undefined;
	const characters = [...found.snippet];
	let at = 0;
	const pieces = found.ranges.map(({ start, end }) => {
		const piece = `${characters.slice(at, start).join("")}[${characters.slice(start, end).join("")}]`;
		at = end;
		return piece;
	});
	return `${found.field}: ${pieces.join("")}${characters.slice(at).join("")}`;
}

test.each([
	["read", "Read it, read it", "message: [Read] it, [read] it"],
	["read_file", "call read_file('a') or read file", "message: call [read_file]('a') or [read file]"],
	["file", "ReadFile", "message: Read[File]"],
	["foobar", "a FooBar", "message: a [FooBar]"],
	["src/app.ts", "/work/src/app.ts:12", "message: /work/[src/app.ts]:12"],
	["cafe", "😀 Café!", "message: 😀 [Café]!"],
	["stra*", "die Straßen", "message: die [Straßen]"],
	["录页", "登录页面", "message: 登[录页]面"],
	["ไทย", "ภาษาไทยง่าย", "message: ภาษา[ไทย]ง่าย"],
	['"b c" b', "a b c", "message: a [b c]"],
	["录页", "登录, 页面", undefined],
	['"a c"', "a b c", undefined],
	["a -b", "a b", undefined],
	['a -"b c"', "a c b", "message: [a] c b"],
	["a -bar", "a FooBar", undefined],
	["fil", "file", undefined],
	["🚀", "to 🚀🚀!", "message: to [🚀][🚀]!"],
	["deploy -🎉", "deploy 🎉", undefined],
	['"all done"', "all ✅ done", "message: [all ✅ done]"],
	['"all ✅"', "all done ✅", undefined],
	["/etc/passwd.d*", "cat /etc/passwd.dpkg", "message: cat /[etc/passwd.dpkg]"],
	["/etc/passwd.d*", "cat /etc/passwd", undefined],
])("the query %j in %j", (query, text, expected) => {
	expect(marked(query, text)).toBe(expected);
});

test("the texts of one event meet a query together; the snippet is of the one with the most words", () => {
	const command: SearchText = { field: "command", text: "run the tests" };
	const file: SearchText = { field: "file_name", text: "tests/run.sh" };
	expect(marked("run tests sh", command, file)).toBe("file_name: [tests]/[run].[sh]");
	expect(marked('"tests tests"', command, file)).toBeUndefined();
	expect(marked("the sh", command, file)).toBe("command: run [the] tests");
	expect(marked("run -sh", command, file)).toBeUndefined();
});

test("the detail of an error is shown rather than its code", () => {
	const code: SearchText = { field: "error", text: "LoginError" };
	const detail: SearchText = { field: "error", text: "The login was refused" };
	expect(marked("login", code, detail)).toBe("error: The [login] was refused");
	expect(marked("loginerror", code, detail)).toBe("error: [LoginError]");
	expect(marked("login", code, { field: "message", text: "The login was refused" })).toBe("error: [Login]Error");
});

test.each(["กี้", "e\u0301", "😀", "👩\u200d"])("a snippet does not begin or end within %j", (character) => {
	for (const before of [60, 61, 62, 63, 64]) {
		const found = matchDocument(parseQuery("word"), [
			{ field: "message", text: `${"x".repeat(before)}${character.repeat(40)}.word.${character.repeat(80)}` },
		]);
		expect(found?.snippet).toMatch(/^(?!\p{M}|\u200d)/u);
		expect(found?.snippet.isWellFormed()).toBe(true);
		expect(found?.snippet.endsWith(character)).toBe(true);
	}
});

test("the snippet of a long text has the place with the most words", () => {
	const filler = "lorem ipsum ".repeat(50);
	const found = marked("red blue", `red ${filler} near red and blue ${filler}`);
	expect(found).toMatch(/^message: [lorem ipsum]{1,60} near \[red\] and \[blue\] lorem/);
	expect([...(found ?? "")].length).toBeLessThan(230);
});

test("a long match is cut", () => {
	expect(marked("xx*", `${"x".repeat(5_000)} end`)).toBe(`message: [${"x".repeat(2_000)}]`);
	expect(marked('"a b"', `a${" ".repeat(5_000)}b`)).toBe(`message: [a${" ".repeat(1_999)}]`);
	expect(marked('"a b"', `a${" ".repeat(1_998)}b`)).toBe(`message: [a${" ".repeat(1_998)}b]`);
});

test("a snippet is a part of the text, and its ranges are in it", () => {
	fc.assert(
		fc.property(
			fc.array(fc.constantFrom("alpha", "Béta", "😀", "登录", "FooBar", "x_y", "\n", "lorem ipsum dolor"), {
				maxLength: 80,
			}),
			fc.constantFrom("alpha", "beta", "foo bar", "录", "alpha beta", "x_y", "al*"),
			(pieces, query) => {
				const text = pieces.join(" ");
				const found = matchDocument(parseQuery(query), [{ field: "message", text }]);
				if (found === undefined) return;
				expect(text).toContain(found.snippet);
				const { length } = [...found.snippet];
				expect(found.ranges).not.toEqual([]);
				let end = 0;
				for (const range of found.ranges) {
					expect(range.start).toBeGreaterThanOrEqual(end);
					expect(range.end).toBeGreaterThan(range.start);
					end = range.end;
				}
				expect(end).toBeLessThanOrEqual(length);
			},
		),
	);
});
