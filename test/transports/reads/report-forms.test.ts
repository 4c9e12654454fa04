import { expect, test } from "vitest";
import { csvField } from "../../../src/transports/reads/report-forms.ts";

test.each([
	["=1+1", "'=1+1"],
	["+1", "'+1"],
	["-1", "'-1"],
	["@a", "'@a"],
	["\t=1", "'\t=1"],
	["\r=1", '"\'\r=1"'],
	["\n=1", '"\'\n=1"'],
	["\r\n\r\n@a", '"\'\r\n\r\n@a"'],
	[" =1", "' =1"],
	["\ufeff\u00ad\u200b=1", "'\ufeff\u00ad\u200b=1"],
	["＝1", "'＝1"],
	["a=1", "a=1"],
	["שלום, b", '"שלום, b"'],
	[-1, "-1"],
	[-1n, "-1"],
])("value %# has its form in CSV", (value, field) => {
	expect(csvField(value)).toBe(field);
});
