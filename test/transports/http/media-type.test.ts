import { expect, test } from "vitest";
import { isJson } from "../../../src/transports/http/body.ts";

test.each([
	"application/json",
	"APPLICATION/JSON",
	"application/json; charset=utf-8",
	"application/json ;charset=utf-8",
	'application/json; profile="a;b"; q=1',
	"application/json;",
	"application/vnd.api+json",
	"Application/Problem+JSON; x=y",
	"application/a+b+json",
	" application/json ",
])("%j is JSON", (contentType) => {
	expect(isJson(contentType)).toBe(true);
});

test.each([
	undefined,
	"",
	"json",
	"application",
	"application/",
	"application/jsonp",
	"application/json-seq",
	"application/xjson",
	"application/+json",
	"application/vnd.api+jsonx",
	"application/vnd.api+json+xml",
	"application/json, text/plain",
	"application/json charset=utf-8",
	"text/json",
	"text/plain",
	"text/vnd.api+json",
	"application/x-www-form-urlencoded",
	"application/octet-stream",
	"xapplication/json",
])("%j is not JSON", (contentType) => {
	expect(isJson(contentType)).toBe(false);
});
