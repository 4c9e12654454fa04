import { expect, test } from "vitest";
import type { ExactJson } from "../../src/record/json/json-value.ts";
import { eventTexts } from "../../src/search/event-texts.ts";

const texts = (event: ExactJson) => eventTexts(event).map(({ field, text }) => [field, text]);

test.each([
	[
		{ kind: "MessageEvent", llm_message: { content: [{ type: "text", text: "a" }, { type: "image" }] } },
		[["message", "a"]],
	],
	[{ kind: "ActionEvent", action: { kind: "FinishAction", message: "done" } }, [["finish_message", "done"]]],
	[{ kind: "ActionEvent", action: { kind: "TerminalAction", command: "ls -l" } }, [["command", "ls -l"]]],
	[
		{ kind: "ActionEvent", action: { kind: "FileEditorAction", command: "view", path: "/src/app.ts" } },
		[["file_name", "/src/app.ts"]],
	],
	[{ kind: "ActionEvent", action: { kind: "MCPToolAction", data: { cmd: ["git", "log"] } } }, [["command", "git log"]]],
	[
		{ kind: "ACPToolCallEvent", title: "Read file", raw_input: { path: "a.txt" } },
		[
			["file_name", "a.txt"],
			["command", "Read file"],
		],
	],
	[
		{ kind: "ConversationErrorEvent", code: "MaxIterations", detail: "too many" },
		[
			["error", "MaxIterations"],
			["error", "too many"],
		],
	],
	[{ kind: "AgentErrorEvent", error: "no such tool" }, [["error", "no such tool"]]],
	[
		{ kind: "ObservationEvent", observation: { is_error: true, content: [{ type: "text", text: "exit 1" }] } },
		[["error", "exit 1"]],
	],
	[{ kind: "ObservationEvent", observation: { is_error: false, content: [{ type: "text", text: "fine" }] } }, []],
	[{ kind: "PauseEvent" }, []],
	[null, []],
])("the texts of %j", (event, expected) => {
	expect(texts(event)).toEqual(expected);
});

test("passwords in URLs are hidden, and the texts of an event are bounded", () => {
	const say = (text: string) => texts({ kind: "MessageEvent", llm_message: { content: [{ type: "text", text }] } });
	expect(say("git clone https://me:canary@host/x")).toEqual([["message", "git clone https://**********@host/x"]]);
	expect(say("x".repeat(200_000))).toEqual([["message", "x".repeat(100_000)]]);
});
