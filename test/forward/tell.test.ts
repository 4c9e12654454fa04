import { expect, test } from "vitest";
import { FORMS, type Told } from "../../src/forward/tell.ts";

const TOLD: Told = {
	...{ id: "1", change: "FINISHED", timestamp: "2026-01-01T00:00:00.000Z", conversationId: "a", data: "{}" },
	title: undefined,
};

test.each([
	["one\ntwo\r\u0085three\u2028\u2029four", "one two  three  four"],
	["\u202egnikrow\u202c is \u2066\u061cdone\u2069", " gnikrow  is   done "],
	["soft\u00adhyphen\ufeff<@all>", "soft hyphen   all "],
	["😀".repeat(201), "😀".repeat(200)],
])("a chat is told the title %j as one line", (title, shown) => {
	expect(FORMS.chat?.({ ...TOLD, title }, "https://console.example/#a")).toEqual({
		contentType: "application/json",
		body: JSON.stringify({ text: `Conversation "${shown}": finished\nhttps://console.example/#a` }),
	});
});
