import { expect, test } from "vitest";
import { valueAfter } from "../../src/events/state-update.ts";
import { type ExactJson, type ExactJsonObject, setMember } from "../../src/record/json/json-value.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { REDACTED } from "../../src/userinfo.ts";
import { corpus } from "../support/fixtures.ts";

const format = new RecordFormat();

/** Each member of each record of the corpus, as the service returns it. */
const members = corpus().flatMap(({ name, json }) =>
	Object.entries(format.toJson(format.fromJson(json))).map(([member, value]) => ({ name, member, value })),
);

function after(member: string, value: ExactJson, present: ExactJson | undefined, omitsNulls = false) {
	return valueAfter({ member, value, time: 0n, omitsNulls }, format.plan, present);
}

test("a reported value that equals the present one returns the present value itself", () => {
	const changed = members.filter(({ member, value }) => after(member, structuredClone(value), value) !== value);
	expect(changed).toEqual([]);
});

test("a reported value with placeholders and without null members returns the present value itself", () => {
	const changed = members.filter(({ member, value }) => after(member, hidden(value), value, true) !== value);
	expect(changed).toEqual([]);
});

test("changes beside placeholders are made, and placeholders keep the present values", () => {
	const present = { a: { secret: "s3cret", list: ["x", { secret: "t0ken" }], gone: 1 }, b: null };
	const value = { a: { secret: REDACTED, list: ["y", { secret: REDACTED }], added: [] } };
	const changed = { secret: "s3cret", list: ["y", { secret: "t0ken" }], added: [] };
	expect([after("agent_state", value, present), after("agent_state", value, present, true)]).toEqual([
		{ a: changed },
		{ a: changed, b: null },
	]);
});

/** Returns a value with placeholders for the string members of objects, and without their null members. */
function hidden(value: ExactJson): ExactJson {
	if (Array.isArray(value)) return value.map(hidden);
	if (typeof value !== "object" || value === null) return value;
	const shown: ExactJsonObject = {};
	for (const [name, member] of Object.entries(value))
		if (member !== null) setMember(shown, name, typeof member === "string" ? REDACTED : hidden(member));
	return shown;
}
