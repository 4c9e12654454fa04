import {
	contentParts,
	facts,
	folded,
	type Json,
	listOf,
	Members,
	objectOf,
	type Part,
	screenshotAddress,
	type TaskItem,
	textOf,
	textPart,
	valueParts,
} from "./parts.ts";

/** How the calls of each kind of tool are told. What a tool leaves unread of its arguments is shown behind it. */

/** What a call of a tool looks like. */
export interface ToolLook {
	/** What was done, as a person would say it. */
	readonly title: string;
	/** To what: a path, an address, a name. */
	readonly subject: string;
	readonly parts: readonly Part[];
}

/** A call of a tool, and its result. */
interface Call {
	/** The arguments. */
	readonly input: Members;
	/** The members of the observation, without its content; undefined while there is none. */
	readonly output: Members | undefined;
	readonly content: unknown;
	/** Whether the observation says that it failed. */
	readonly failed: boolean;
}

type Tool = (call: Call) => ToolLook;

/** Texts of results that only confirm what the step says already. They are not shown. */
const CONFIRMATIONS = new Set(["Your thought has been logged.", "Tool call dispatched to client."]);

const terminal: Tool = ({ input, output, content }) => {
	const command = input.text("command");
	const isInput = input.flag("is_input");
	const metadata = new Members(objectOf(output?.take("metadata")), "exit_code");
	const directory = metadata.text("working_dir");
	output?.take("command");
	return {
		title: isInput ? "Terminal input" : "Terminal",
		subject: "",
		parts: [
			...textPart("command", command),
			...textPart("text", input.flag("reset") ? "The terminal is started anew." : ""),
			...input.rest(),
			...contentParts(content, "terminal"),
			...facts(["directory", directory]),
			...folded("terminal", [...metadata.rest(), ...(output?.rest() ?? [])]),
		],
	};
};

const EDITS: Readonly<Record<string, string>> = {
	view: "View",
	create: "Create",
	str_replace: "Edit",
	insert: "Insert into",
	undo_edit: "Undo the edit of",
};

const fileEditor: Tool = ({ input, output, content, failed }) => {
	const command = input.text("command");
	const path = input.text("path");
	const given = {
		file_text: input.text("file_text"),
		old_str: input.text("old_str"),
		new_str: input.text("new_str"),
	};
	const line = input.take("insert_line");
	const range = listOf(input.take("view_range"));
	for (const name of ["command", "path", "prev_exist"]) output?.take(name);
	const [before, after] = ["old_content", "new_content"].map((name) => output?.take(name));
	const isChange = command !== "view" && !failed && typeof after === "string";
	const whole = isChange ? diffOf(path, textOf(before), after, true) : [];
	const said = contentParts(content, "text");
	return {
		title: EDITS[command] ?? `File editor: ${command}`,
		subject: path,
		parts: [
			...facts(
				["after line", line === undefined || line === null ? undefined : String(line)],
				["lines", range.length === 0 ? undefined : range.join(" to ")],
			),
			...(whole.length > 0 ? whole : givenDiff(path, given)),
			...input.rest(),
			...(whole.length > 0 ? folded("as it was asked for, and answered", [...valueParts("", given), ...said]) : said),
			...(output?.foldedRest("more") ?? []),
		],
	};
};

function givenDiff(path: string, given: { file_text: string; old_str: string; new_str: string }): readonly Part[] {
	const [before, after] = given.file_text === "" ? [given.old_str, given.new_str] : ["", given.file_text];
	return diffOf(path, before, after, false);
}

function diffOf(path: string, before: string, after: string, isWhole: boolean): readonly Part[] {
	return before === after ? [] : [{ kind: "diff", path, before, after, isWhole }];
}

/** The tools that edit and write files of the agent for Gemini. */
const editFile: Tool = ({ input, output, content }) => {
	const path = input.text("file_path");
	const given = {
		old_str: input.text("old_string"),
		new_str: input.text("new_string"),
		file_text: input.text("content"),
	};
	const expected = input.take("expected_replacements");
	const [before, after] = ["old_content", "new_content"].map((name) => output?.take(name));
	for (const name of ["file_path", "is_new_file"]) output?.take(name);
	const whole = typeof after === "string" ? diffOf(path, textOf(before), after, true) : [];
	const said = contentParts(content, "text");
	return {
		title: given.file_text === "" ? "Edit" : "Write",
		subject: path,
		parts: [
			...(whole.length > 0 ? whole : givenDiff(path, given)),
			...(typeof expected === "number" && expected !== 1 ? facts(["replacements", String(expected)]) : []),
			...input.rest(),
			...(whole.length > 0 ? folded("as it was asked for, and answered", [...valueParts("", given), ...said]) : said),
			...(output?.foldedRest("more") ?? []),
		],
	};
};

const applyPatch: Tool = ({ input, output, content }) => {
	const patch = input.text("patch");
	const changes = Object.entries(objectOf(objectOf(output?.take("commit"))?.changes) ?? {});
	const diffs = changes.flatMap(([path, change]) => {
		const { old_content, new_content, move_path } = objectOf(change) ?? {};
		const moved = facts(["moved to", textOf(move_path)]);
		return [...diffOf(path, textOf(old_content), textOf(new_content), true), ...moved];
	});
	const given: Part = { kind: "code", label: "", text: patch };
	return {
		title: "Apply a patch",
		subject: changes.length === 1 ? (changes[0]?.[0] ?? "") : "",
		parts: [
			...(diffs.length > 0 ? [...diffs, ...folded("the patch", [given])] : [given]),
			...input.rest(),
			...contentParts(content, "text"),
			...(output?.foldedRest("more") ?? []),
		],
	};
};

const BROWSER: Readonly<Record<string, string>> = {
	BrowserNavigateAction: "Open",
	BrowserClickAction: "Click",
	BrowserTypeAction: "Type",
	BrowserGetStateAction: "Look at the page",
	BrowserGetContentAction: "Read the page",
	BrowserScrollAction: "Scroll",
	BrowserGoBackAction: "Go back",
	BrowserListTabsAction: "List the tabs",
	BrowserSwitchTabAction: "Switch to a tab",
	BrowserCloseTabAction: "Close a tab",
	BrowserGetStorageAction: "Read the storage of the browser",
	BrowserSetStorageAction: "Set the storage of the browser",
	BrowserStartRecordingAction: "Start a recording",
	BrowserStopRecordingAction: "Stop the recording",
};

function browser(title: string): Tool {
	return ({ input, output, content }) => {
		const screenshot = textOf(output?.take("screenshot_data"));
		const directory = output?.text("full_output_save_dir");
		const url = input.text("url");
		const typed = input.text("text");
		return {
			title: `Browser: ${title}`,
			subject: url,
			parts: [
				...textPart("text", typed),
				...textPart("text", input.flag("new_tab") ? "In a new tab." : ""),
				...input.rest(),
				...(screenshot === ""
					? []
					: [{ kind: "picture" as const, name: "screenshot", address: screenshotAddress(screenshot) }]),
				...contentParts(content, "text"),
				...folded("more", [...facts(["full output in", directory]), ...(output?.rest() ?? [])]),
			],
		};
	};
}

function tasksOf(value: unknown): readonly TaskItem[] {
	return listOf(value).map((item) => {
		const { title, notes, status } = objectOf(item) ?? {};
		return { title: textOf(title), notes: textOf(notes), status: textOf(status) };
	});
}

const taskTracker: Tool = ({ input, output, content }) => {
	const command = input.text("command");
	const planned = tasksOf(input.take("task_list"));
	output?.take("command");
	const present = tasksOf(output?.take("task_list"));
	const tasks = planned.length > 0 ? planned : present;
	const done = tasks.filter(({ status }) => status === "done").length;
	return {
		title: command === "view" ? "Look at the tasks" : "Plan the tasks",
		subject: tasks.length === 0 ? "" : `${done} of ${tasks.length} done`,
		parts: [
			...(tasks.length === 0 ? [] : [{ kind: "tasks" as const, tasks }]),
			...input.rest(),
			...folded("answer", [...contentParts(content, "text"), ...(output?.rest() ?? [])]),
		],
	};
};

const delegate: Tool = ({ input, output, content }) => {
	const command = input.text("command");
	const ids = listOf(input.take("ids"));
	const types = listOf(input.take("agent_types"));
	const tasks = Object.entries(objectOf(input.take("tasks")) ?? {});
	output?.take("command");
	return {
		title: command === "spawn" ? "Start sub-agents" : "Give tasks to sub-agents",
		subject: ids.length > 0 ? ids.join(", ") : tasks.map(([id]) => id).join(", "),
		parts: [
			...facts(...types.map((type, index) => [textOf(ids[index]) || "agent", textOf(type)] as const)),
			...tasks.flatMap(([id, task]) => [...facts(["for", id]), ...contentParts(task, "markdown")]),
			...input.rest(),
			...contentParts(content, "markdown"),
			...(output?.foldedRest("more") ?? []),
		],
	};
};

const task: Tool = ({ input, output, content }) => {
	const description = input.text("description");
	return {
		title: "Give a task to a sub-agent",
		subject: description,
		parts: [
			...facts(["agent", input.text("subagent_type")], ["goes on with", input.text("resume")]),
			...textPart("markdown", input.text("prompt")),
			...input.rest(),
			...(output?.rest() ?? []),
			...contentParts(content, "markdown"),
		],
	};
};

const startChild: Tool = ({ input, output, content }) => ({
	title: "Start a sub-agent",
	subject: input.text("title"),
	parts: [
		...textPart("markdown", input.text("task")),
		...facts(["workspace", input.text("isolation")]),
		...input.rest(),
		...contentParts(content, "text"),
		...(output?.foldedRest("the conversation that was started") ?? []),
	],
});

/** A tool with one text that says what it does, and an answer. */
function says(title: string, name: string, subject = ""): Tool {
	return ({ input, output, content }) => ({
		title,
		subject: subject === "" ? "" : input.text(subject),
		parts: [
			...textPart("markdown", input.text(name)),
			...input.rest(),
			...answer(content),
			...(output?.foldedRest("more") ?? []),
		],
	});
}

function answer(content: unknown): readonly Part[] {
	return contentParts(content, "markdown").filter((part) => !("text" in part && CONFIRMATIONS.has(part.text)));
}

const finish: Tool = ({ input, output, content }) => {
	const message = input.text("message");
	// The result repeats the message.
	const said = contentParts(content, "markdown").filter((part) => !("text" in part && part.text === message));
	return {
		title: "Finish",
		subject: "",
		parts: [...textPart("markdown", message), ...input.rest(), ...said, ...(output?.foldedRest("more") ?? [])],
	};
};

/** A tool that finds or reads files: what it was asked for stands beside its name. */
function reads(title: string, subject: string): Tool {
	return ({ input, output, content }) => ({
		title,
		subject: input.text(subject),
		parts: [...input.rest(), ...contentParts(content, "text"), ...(output?.foldedRest("more") ?? [])],
	});
}

/** A tool of the Model Context Protocol. Its arguments are in one member. */
const mcp: Tool = (call) => {
	const data = objectOf(call.input.take("data"));
	const name = call.output?.text("tool_name") ?? "";
	const other = fallback("")({ ...call, input: new Members(data) });
	return { title: name === "" ? "" : `MCP: ${name}`, subject: "", parts: [...call.input.rest(), ...other.parts] };
};

/** Any other tool: each argument, and each member of the result. */
function fallback(title: string): Tool {
	return ({ input, output, content }) => ({
		title,
		subject: "",
		parts: [...input.rest(), ...contentParts(content, "text"), ...(output?.rest() ?? [])],
	});
}

/** The tools by the kind of their action. */
const TOOLS: Readonly<Record<string, Tool>> = {
	TerminalAction: terminal,
	ExecuteBashAction: terminal,
	FileEditorAction: fileEditor,
	PlanningFileEditorAction: fileEditor,
	EditAction: editFile,
	WriteFileAction: editFile,
	ReadFileAction: reads("Read", "file_path"),
	ListDirectoryAction: reads("List", "dir_path"),
	ApplyPatchAction: applyPatch,
	GlobAction: reads("Find files", "pattern"),
	GrepAction: reads("Search in files", "pattern"),
	...Object.fromEntries(Object.entries(BROWSER).map(([kind, title]) => [kind, browser(title)])),
	TaskTrackerAction: taskTracker,
	DelegateAction: delegate,
	TaskAction: task,
	StartChildConversationAction: startChild,
	WorkflowAction: ({ input, output, content }) => ({
		title: "Run a workflow",
		subject: input.text("name"),
		parts: [
			...valueParts("script", input.text("script")),
			...input.rest(),
			...contentParts(content, "markdown"),
			...(output?.foldedRest("more") ?? []),
		],
	}),
	ThinkAction: says("Thought", "thought"),
	FinishAction: finish,
	AskOracleAction: says("Ask another model", "question"),
	ConsultTomAction: says("Ask about the user", "custom_query"),
	InvokeSkillAction: reads("Use a skill", "name"),
	SwitchLLMAction: says("Switch the model", "reason", "profile_name"),
	ClassifyAndSwitchLLMAction: says("Choose the model for the task", "reason"),
	VisionInspectAction: says("Look at an image", "question"),
	MCPToolAction: mcp,
};

/** Kinds of actions that change files. */
export const CHANGES_FILES = new Set([
	"FileEditorAction",
	"PlanningFileEditorAction",
	"EditAction",
	"WriteFileAction",
	"ApplyPatchAction",
]);

/** Kinds of actions that begin a conversation of another agent. */
export const STARTS_CHILDREN = new Set([
	"DelegateAction",
	"TaskAction",
	"StartChildConversationAction",
	"WorkflowAction",
]);

/**
 * Returns what a call of a tool looks like.
 *
 * @param name name of the tool
 * @param action its arguments
 * @param observation its result; undefined while there is none
 */
export function lookOfCall(name: string, action: Json, observation: Json | undefined): ToolLook {
	const kind = textOf(action.kind);
	const tool = Object.hasOwn(TOOLS, kind) ? TOOLS[kind] : undefined;
	// Older agent servers have the result in another member.
	const contentName = observation?.content === undefined ? "output" : "content";
	const look = (tool ?? fallback(name))({
		input: new Members(action, "kind"),
		output: observation && new Members(observation, "kind", "is_error", contentName),
		content: observation?.[contentName],
		failed: observation?.is_error === true,
	});
	return look.title === "" ? { ...look, title: name || "Tool" } : look;
}
