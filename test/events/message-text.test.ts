import { expect, test } from "vitest";
import { beginning, messageText } from "../../src/events/event-parts.ts";

const text = (value: string) => ({ type: "text", text: value });

test.each([
	[{ kind: "MessageEvent", llm_message: { content: [text("one")] } }, "one"],
	[{ kind: "MessageEvent", llm_message: { content: [text("one"), { type: "image" }, text("two")] } }, "one\ntwo"],
	[{ kind: "MessageEvent", llm_message: { content: [text("")] } }, ""],
	[
		{
			kind: "MessageEvent",
			llm_message: { content: [{ type: "image" }, { type: "text" }, { type: "text", text: 1 }, null] },
		},
		undefined,
	],
	[{ kind: "MessageEvent", llm_message: { content: "one" } }, undefined],
	[{ kind: "MessageEvent" }, undefined],
	[{ kind: "ActionEvent", action: { kind: "FinishAction", message: "done" } }, "done"],
	[{ kind: "ActionEvent", action: { kind: "FinishAction", message: 1 } }, undefined],
	[{ kind: "ActionEvent", action: { kind: "ThinkAction", message: "no" } }, undefined],
	[{ kind: "ObservationEvent", llm_message: { content: [text("no")] } }, undefined],
])("the message text of %j is %j", (event, expected) => {
	expect(messageText(JSON.parse(JSON.stringify(event)))).toBe(expected);
});

test.each([
	["abc", 3, "abc"],
	["abcd", 3, "abc"],
	["a😀b😀c", 3, "a😀b"],
	["😀😀", 2, "😀😀"],
	["", 3, ""],
])("the beginning of %j, %d characters, is %j", (whole, count, expected) => {
	expect(beginning(whole, count)).toBe(expected);
});
