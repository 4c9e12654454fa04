import { describe, expect, test } from "vitest";
import { echoable, hasUserinfo, replaceUserinfo } from "../src/userinfo.ts";

describe("the userinfo of a URL is a secret", () => {
	test.each([
		["https://user:pass@host/", "https://#@host/"],
		["see ftp://user:p@ss@host, and https://token@host", "see ftp://#@host, and https://#@host"],
		["git+https://ghp_1@github.com/o/r.git", "git+https://#@github.com/o/r.git"],
		["HTTPS://:pass@host", "HTTPS://#@host"],
		["postgresql://user:pass@db/x", "postgresql://#@db/x"],
	])("in %s", (text, expected) => {
		expect(hasUserinfo(text)).toBe(true);
		expect(replaceUserinfo(text, () => "#")).toBe(expected);
	});

	test.each([
		"ssh://git@host/",
		"https://host/@user",
		"https://host:80/a:b@c",
		"https://@host",
		"https://**********@host/",
		"user:pass@host",
		"mailto:a@b",
		"",
	])("but not in %j", (text) => {
		expect(hasUserinfo(text)).toBe(false);
		expect(echoable(text)).toBe(text);
	});
});

test("a text is repeated without passwords in URLs, also in percent-encoded ones", () => {
	expect(echoable("POST /a/https%3A%2F%2Fu%3Apass%40host?x")).toBe("POST /a/https://**********@host?x");
	expect(echoable("100% of https://u:pass@host")).toBe("100% of https://**********@host");
	expect(echoable("/a%2Fb%zz")).toBe("/a%2Fb%zz");
});
