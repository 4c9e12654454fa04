import { expect, test } from "vitest";
import { ServiceError } from "../../../src/errors.ts";
import { Query } from "../../../src/transports/reads/query.ts";

const names = ["number", "time", "word", "text", "list"] as const;

function query(search: string): Query<(typeof names)[number]> {
	return new Query(search, names, ["list"]);
}

function refused(message: string): ServiceError {
	return new ServiceError("invalid_argument", message);
}

test("parameters are read as numbers, times, words, texts and lists", () => {
	const read = query("number=12&time=2026-01-31T12:00:00.5%2B02:00&word=b&text=a+b%26%3F?%C3%A9&list=1&list=2");
	expect(read.number("number")).toBe(12n);
	expect(read.dateTime("time")).toMatchObject({ seconds: 1_769_853_600n, nanos: 500_000_000 });
	expect(read.word("word", ["a", "b"])).toBe("b");
	expect(read.text("text")).toBe("a b&??é");
	expect(read.texts("list")).toEqual(["1", "2"]);
});

test("absent parameters have their defaults", () => {
	const read = query("");
	expect(read.number("number")).toBeUndefined();
	expect(read.dateTime("time")).toBeUndefined();
	expect(read.word("word", ["a", "b"])).toBe("a");
	expect(read.text("text")).toBe("");
	expect(read.texts("list")).toEqual([]);
});

test("an unencoded plus sign in a time is read as the sign of its offset", () => {
	expect(query("time=2026-01-31T12:00:00+02:00").dateTime("time")).toMatchObject({ seconds: 1_769_853_600n });
});

test.each([
	["other=1", 'query parameter "other" is not known'],
	["__proto__=1", 'query parameter "__proto__" is not known'],
	["=1", 'query parameter "" is not known'],
	["text=%ff", 'query parameter "text" is not percent-encoded UTF-8'],
	["number=1&text=100%", 'query parameter "text" is not percent-encoded UTF-8'],
	["text=\u00c3\u00a9", 'query parameter "text" is not percent-encoded UTF-8'],
	["%ff=1", 'query parameter "%ff" is not percent-encoded UTF-8'],
	[`${"x".repeat(65)}=1`, `query parameter "${"x".repeat(64)}…" is not known`],
	["text=1&text=1", "text may be given only once"],
])("the query %s is refused", (search, message) => {
	expect(() => query(search)).toThrow(refused(message));
});

test.each(["", "-1", "1.0", "1e3", " 1", "0x1", "9223372036854775808", "99999999999999999999"])(
	"%j is refused as a number",
	(text) => {
		const read = query(new URLSearchParams({ number: text }).toString());
		expect(() => read.number("number")).toThrow(refused("number must be a whole number, 0 or more"));
	},
);

test.each(["", "2026-01-31", "2026-01-31 12:00:00Z", "1769853600", "2026-02-30T00:00:00Z"])(
	"%j is refused as a time",
	(text) => {
		const read = query(new URLSearchParams({ time: text }).toString());
		const message = "time must be an ISO 8601 date-time such as 2026-01-31T12:00:00Z";
		expect(() => read.dateTime("time")).toThrow(refused(message));
	},
);

test("a word that is not in the list of words is refused", () => {
	expect(() => query("word=c").word("word", ["a", "b"])).toThrow(refused("word must be one of a, b"));
	expect(() => query("word=").word("word", ["a", "b"])).toThrow(refused("word must be one of a, b"));
});
