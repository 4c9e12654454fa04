import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { attributionOf } from "../../console/src/pages/conversation/attribution.ts";
import { changedFiles } from "../../console/src/pages/conversation/changed-files.ts";
import { diffLines } from "../../console/src/pages/conversation/diff-lines.ts";
import { type Json, objectOf, type Part, textsOfParts } from "../../console/src/pages/conversation/parts.ts";
import { spentTimeOf } from "../../console/src/pages/conversation/spent-time.ts";
import { StepList } from "../../console/src/pages/conversation/step-list.ts";
import {
	isMinor,
	lookOfStep,
	type ParsedEvent,
	type Step,
	type StepLook,
} from "../../console/src/pages/conversation/steps.ts";
import { terminalLines, terminalText } from "../../console/src/pages/conversation/terminal.ts";
import { capturedBatches, capturedSequences } from "../support/fixtures.ts";

/** What steps show of their events. */

function parsed(members: Json, sequence: number): ParsedEvent {
	const text = (name: string) => (typeof members[name] === "string" ? members[name] : undefined);
	return {
		sequence: BigInt(sequence),
		id: text("id") ?? `event-${sequence}`,
		kind: text("kind") ?? "",
		source: text("source") ?? "",
		parentId: undefined,
		time: sequence * 1000,
		members,
		unreadable: false,
	};
}

function stepsOf(events: readonly Json[]): readonly Step[] {
	const list = new StepList();
	list.add(events.map((event, index) => parsed(event, index + 1)));
	return list.steps;
}

/** Returns each text of a value. */
function textsOf(value: unknown): readonly string[] {
	if (typeof value === "string") return [value];
	return typeof value === "object" && value !== null ? Object.values(value).flatMap(textsOf) : [];
}

/** Returns all texts of a step. A picture counts by its address. */
function shownBy(look: StepLook): readonly string[] {
	return [look.title, look.subject, ...look.tags.map(({ word }) => word), ...textsOfParts(look.parts)];
}

/** Number of folds that a person opens one within the other to see all parts. */
function foldsOf(parts: readonly Part[]): number {
	return Math.max(0, ...parts.map((part) => (part.kind === "fold" ? 1 + foldsOf(part.parts) : 0)));
}

/** Returns the arguments of an event: those of the action, and those that the model gave. */
function argumentsOf(event: Json): readonly string[] {
	const { kind: _, ...action } = objectOf(event.action) ?? {};
	const given: unknown = JSON.parse(String(objectOf(event.tool_call)?.arguments ?? "{}"));
	return [...textsOf(action), ...textsOf(given), ...textsOf(event.raw_input), ...textsOf(event.raw_output)];
}

const CORPUS: readonly (readonly [string, readonly Json[]])[] = [
	...capturedBatches().map(({ name, events }) => [name, events] as const),
	...capturedSequences().map(({ name, posts }) => {
		const bodies = posts.filter(({ webhook }) => webhook === "events").map(({ body }): unknown => JSON.parse(body));
		return [name, bodies.flat().map((event) => objectOf(event) ?? {})] as const;
	}),
];

describe("all events of the corpus", () => {
	test.each(CORPUS)("%s: each text of each argument is shown, or behind one fold", (_, events) => {
		for (const step of stepsOf(events)) {
			const look = lookOfStep(step);
			const shown = shownBy(look);
			for (const { members } of step.events)
				for (const argument of argumentsOf(members))
					if (!["HIGH", "MEDIUM", "LOW", "UNKNOWN"].includes(argument))
						expect(
							shown.some((text) => text.includes(argument)),
							argument,
						).toBe(true);
			if (step.look === "tool") expect(foldsOf(look.parts)).toBeLessThanOrEqual(1);
		}
	});

	test.each<[string, readonly string[]]>([
		["acp-full", ["User", "System prompt", "Status: running", "Read file", "Finish", "Status: finished"]],
		[
			"hooks-full",
			[
				...["Status: paused", "Paused", "Hook SessionStart", "System prompt", "Hook UserPromptSubmit", "User"],
				...["Status: running", "Finish", "Status: finished", "Hook Stop"],
			],
		],
		[
			"resume-cycle",
			[
				...["System prompt", "User", "Status: running", "Status: paused", "Interrupted", "Status: running"],
				...["Status: paused", "Interrupted", "Status: running", "Finish", "Status: finished"],
			],
		],
		[
			"confirm-ConfirmRisky-LOW",
			[...["System prompt", "User", "Status: running", "Terminal", "Risk judged"], "Status: waits for a confirmation"],
		],
	])("%s: the steps that are shown at first have their titles", (name, titles) => {
		const [, events = []] = CORPUS.find(([of]) => of === name) ?? [];
		const shown = stepsOf(events).filter((step) => !isMinor(step));
		expect(shown.map((step) => lookOfStep(step).title)).toEqual(titles);
	});

	test("are many, and of many kinds", () => {
		const kinds = new Set(CORPUS.flatMap(([, events]) => events.map(({ kind }) => kind)));
		expect(kinds.size).toBeGreaterThanOrEqual(13);
	});
});

/** Returns an event at a time in seconds. */
function at(seconds: number, kind: string, members: Json = {}): Json {
	return { kind, id: `${kind} ${seconds}`, seconds, ...members };
}

function timed(events: readonly Json[]): readonly Step[] {
	const list = new StepList();
	list.add(events.map((event, index) => ({ ...parsed(event, index + 1), time: Number(event.seconds) * 1000 })));
	return list.steps;
}

const status = (seconds: number, value: string) =>
	at(seconds, "ConversationStateUpdateEvent", { key: "execution_status", value });
const action = (seconds: number, id: string, members: Json = {}) =>
	at(seconds, "ActionEvent", {
		id,
		tool_name: "terminal",
		action: { kind: "TerminalAction", command: "ls" },
		...members,
	});
const result = (seconds: number, of: string, observation: Json = {}) =>
	at(seconds, "ObservationEvent", { action_id: of, observation });

describe("the time of a run", () => {
	test.each<[string, readonly Json[], string]>([
		[
			"is the model's before a call, the tool's during it, and waiting after the end",
			[status(0, "running"), action(5, "a"), result(9, "a"), status(10, "finished"), status(30, "running")],
			"model 0–5, tool 5–9, model 9–10, waiting 10–30",
		],
		[
			"is waiting while a person is asked to confirm, and the tool's after that",
			[
				...[status(0, "running"), action(2, "a"), status(3, "waiting_for_confirmation"), status(60, "running")],
				result(64, "a"),
			],
			"model 0–2, tool 2–3, waiting 3–60, tool 60–64",
		],
		[
			"is not that of a tool which an interruption ended",
			[status(0, "running"), action(1, "a"), status(2, "paused"), status(3, "running"), action(9, "b")],
			"model 0–1, tool 1–2, waiting 2–3, model 3–9",
		],
		[
			"is waiting before a person writes, if no status is known",
			[at(0, "MessageEvent", { source: "agent" }), at(8, "MessageEvent", { source: "user" }), action(9, "a")],
			"waiting 0–8, model 8–9",
		],
	])("%s", (_, events, spans) => {
		const { spans: found, sums } = spentTimeOf(timed(events));
		expect(found.map(({ kind, from, to }) => `${kind} ${from / 1000}–${to / 1000}`).join(", ")).toBe(spans);
		const [first, last] = [found[0], found.at(-1)];
		expect(sums.model + sums.tool + sums.waiting).toBe((last?.to ?? 0) - (first?.from ?? 0));
	});
});

describe("the price of a step", () => {
	const costs = (...values: number[]) => values.map((cost, index) => ({ cost, timestamp: 100 + index, model: "m" }));
	const named = (...ids: string[]) => ids.map((response_id) => ({ response_id, latency: 1, model: "m" }));
	const tokens = (...ids: string[]) =>
		ids.map((response_id, index) => ({ response_id, prompt_tokens: 10 * (index + 1), completion_tokens: 1 }));
	const pricesOf = (metrics: Json, ...responses: string[]) => {
		const steps = timed(
			responses.map((llm_response_id, index) => action(50 - index, `a${index}`, { llm_response_id })),
		);
		const { prices } = attributionOf({ stats: { usage_to_metrics: { agent: metrics } } }, steps);
		return Object.fromEntries(prices);
	};

	test.each<[string, Json, readonly string[], Json]>([
		[
			"is that of its response, whatever the times are, and its tokens",
			{ costs: costs(0.1, 0.2), response_latencies: named("r1", "r2"), token_usages: tokens("r1", "r2") },
			["r2", "r1"],
			{ a0: { cost: 0.2, tokens: 21 }, a1: { cost: 0.1, tokens: 11 } },
		],
		[
			"is shown once by the first of several calls of one response",
			{ costs: costs(0.1), response_latencies: named("r1"), token_usages: tokens("r1") },
			["r1", "r1"],
			{ a0: { cost: 0.1, tokens: 11 } },
		],
		[
			"has tokens alone if costs cannot be told apart, because a call was free",
			{ costs: costs(0.1), response_latencies: named("r1", "r2"), token_usages: tokens("r1", "r2") },
			["r1", "r2"],
			{ a0: { cost: undefined, tokens: 11 }, a1: { cost: undefined, tokens: 21 } },
		],
		[
			"is that of the tokens at the same place if there are no latencies",
			{ costs: costs(0.3), token_usages: tokens("r1") },
			["r1"],
			{ a0: { cost: 0.3, tokens: 11 } },
		],
		[
			"is the sum of the costs of its response in whole units",
			{ costs: costs(0.1, 0.2), response_latencies: named("r1", "r1"), token_usages: tokens("r1") },
			["r1"],
			{ a0: { cost: 0.3, tokens: 11 } },
		],
	])("%s", (_, metrics, responses, prices) => {
		expect(pricesOf(metrics, ...responses)).toEqual(prices);
	});
});

describe("a step has failed", () => {
	test.each<[string, readonly Json[], boolean]>([
		["if its exit code is not 0", [action(1, "a"), result(2, "a", { exit_code: 2 })], true],
		["but not with the exit code 0", [action(1, "a"), result(2, "a", { exit_code: 0 })], false],
		["but not while the command still runs", [action(1, "a"), result(2, "a", { exit_code: -1 })], false],
		["if its result says so", [action(1, "a"), result(2, "a", { is_error: true })], true],
		["if a hook blocked it", [at(1, "HookExecutionEvent", { blocked: true })], true],
		["if the agent could not make the call", [action(1, "a"), at(2, "AgentErrorEvent", { action_id: "a" })], true],
		["if its ACP tool call failed", [at(1, "ACPToolCallEvent", { tool_call_id: "t", status: "failed" })], true],
	])("%s", (_, events, failed) => {
		expect(timed(events).map((step) => step.failed)).toEqual([failed]);
	});
});

describe("changed files", () => {
	const edit = (seconds: number, path: string, before: string | null, after: string, isError = false) => [
		at(seconds, "ActionEvent", {
			id: `e${seconds}`,
			action: { kind: "FileEditorAction", command: "str_replace", path, old_str: "x", new_str: "y" },
		}),
		result(seconds + 1, `e${seconds}`, { is_error: isError, path, old_content: before, new_content: after }),
	];

	test("go from their first to their last state, without edits that failed", () => {
		const steps = timed([
			...edit(1, "a.ts", null, "one\n"),
			...edit(3, "b.ts", "b\n", "bb\n"),
			...edit(5, "a.ts", "one\n", "one\ntwo\n"),
			...edit(7, "a.ts", "never", "written", true),
		]);
		expect(changedFiles(steps).map(({ path, changes }) => [path, changes])).toEqual([
			["a.ts", [{ kind: "diff", path: "a.ts", before: "", after: "one\ntwo\n", isWhole: true }]],
			["b.ts", [{ kind: "diff", path: "b.ts", before: "b\n", after: "bb\n", isWhole: true }]],
		]);
	});

	test("of an ACP agent are shown piece by piece", () => {
		const call = (seconds: number, old_text: string, new_text: string) =>
			at(seconds, "ACPToolCallEvent", {
				tool_call_id: `t${seconds}`,
				status: "completed",
				content: [{ type: "diff", path: "a.ts", old_text, new_text }],
			});
		const [file] = changedFiles(timed([call(1, "a", "b"), call(2, "c", "d")]));
		expect(file?.changes.map(({ before, after, isWhole }) => [before, after, isWhole])).toEqual([
			["a", "b", false],
			["c", "d", false],
		]);
	});
});

describe("a terminal", () => {
	// Each run of letters has its style in braces if it has one.
	test.each([
		["a\nb", "a\nb"],
		["10 %\r100 %\r\nend", "100 %\nend"],
		["long line\rshort", "shortline"],
		["long line\r\u001b[Kshort", "short"],
		["abc\b\bX", "aXc"],
		["\u001b[31mred\u001b[0m plain", "red{ansi-red-fg} plain"],
		["\u001b[1mbold\u001b[4mboth\u001b[0m", "bold{ansi-bold}both{ansi-bold ansi-underline}"],
		["\u001b]0;title\u0007a\u001b(Bb", "ab"],
		["\u001b[38;5;208mx\u001b[48;2;1;2;3my", "x{ansi-other-fg}y{ansi-other-fg ansi-other-bg}"],
		["\u001b[2Jz\u001b[", "z"],
	])("shows %j as %j", (text, shown) => {
		const lines = terminalLines(text).map((line) =>
			line.map((run) => (run.style === "" ? run.text : `${run.text}{${run.style}}`)).join(""),
		);
		expect(lines.join("\n")).toBe(shown);
	});

	test("shows the letters of any text that moves nothing", () => {
		const piece = fc.constantFrom("a", "b\n", "\u001b[31m", "\u001b[0m", "\u001b[1;4m", "é🎉", " ");
		fc.assert(
			fc.property(fc.array(piece), (pieces) => {
				const letters = pieces.filter((one) => !one.startsWith("\u001b")).join("");
				expect(terminalText(pieces.join(""))).toBe(letters);
			}),
		);
	});
});

describe("a diff", () => {
	const diff = (before: string, after: string) => diffLines({ kind: "diff", path: "a", before, after, isWhole: true });

	test("has the numbers of its lines, and those around a change", () => {
		const before = Array.from({ length: 20 }, (_, line) => `line ${line + 1}`).join("\n");
		const { lines, added, removed } = diff(before, before.replace("line 10", "changed"));
		expect([added, removed]).toEqual([1, 1]);
		const same = (line: number) => ["same", line, line, `line ${line}`];
		expect(lines.map((line) => [line.kind, line.before, line.after, line.text])).toEqual([
			...[["skipped", undefined, undefined, ""], same(7), same(8), same(9)],
			...[["removed", 10, undefined, "line 10"], ["added", undefined, 10, "changed"], same(11), same(12), same(13)],
		]);
	});

	test("of any two texts leads from one to the other", () => {
		const text = fc
			.array(fc.constantFrom("a", "b", "c"), { maxLength: 8 })
			.map((lines) => lines.map((one) => `${one}\n`).join(""));
		fc.assert(
			fc.property(text, text, (before, after) => {
				const { lines } = diff(before, after);
				// Texts this short have no line that is left out at their start or between changes.
				const of = (without: string) => lines.filter(({ kind }) => kind !== without).map((line) => line.text);
				const all = (value: string) => value.split("\n").slice(0, -1);
				for (const line of lines) {
					if (line.before !== undefined) expect(all(before)[line.before - 1]).toBe(line.text);
					if (line.after !== undefined) expect(all(after)[line.after - 1]).toBe(line.text);
				}
				expect(of("added").length - of("removed").length).toBe(
					before === after ? 0 : all(before).length - all(after).length,
				);
			}),
		);
	});
});
