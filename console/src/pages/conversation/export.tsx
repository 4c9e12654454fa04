import { useSignal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { cost, dayAndTime, duration, full } from "../../parts/format.ts";
import { NOT_REPORTED } from "../../parts/reported.tsx";
import { BASE_URL, problemOf } from "../../service/service.ts";
import type { Price } from "./attribution.ts";
import { diffLines } from "./diff-lines.ts";
import { ShowingContext } from "./formatted.tsx";
import type { Part } from "./parts.ts";
import { type OpenConversation, readObject, readRecord } from "./state.ts";
import { StepView } from "./step-view.tsx";
import { isMinor, lookOfStep, type Step } from "./steps.ts";
import { terminalText } from "./terminal.ts";

/** A conversation as a file, and on paper. All of it comes from the API, which hides secrets. */

/** Steps that are drawn before the page may do something else. */
const TOGETHER = 100;
/** Most steps that are printed. */
const PRINTED = 2_000;

/** Forms of a file by their names, with the ending of its name and what makes it. */
const FORMS = {
	Markdown: { ending: "md", type: "text/markdown", make: toMarkdown },
	HTML: { ending: "html", type: "text/html", make: toHtml },
	JSON: { ending: "json", type: "application/json", make: toJson },
} as const;
type Form = keyof typeof FORMS;
const FORM_NAMES: readonly Form[] = ["Markdown", "HTML", "JSON"];

/** Saves a conversation as a file. */
async function save(open: OpenConversation, label: string, form: Form): Promise<void> {
	const { ending, type, make } = FORMS[form];
	const text = await make(open, label);
	const link = document.createElement("a");
	link.href = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
	link.download = `conversation-${open.id}.${ending}`;
	link.click();
	// The browser reads it after the click.
	setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function stepsOf(open: OpenConversation): readonly Step[] {
	return open.steps.peek().filter((step) => !isMinor(step));
}

interface WholeStepsProps {
	readonly id: string;
	readonly steps: readonly Step[];
	readonly prices: ReadonlyMap<string, Price>;
}

const WHOLE = { isStatic: true, opens: () => false };
const NO_PLACES: readonly never[] = [];

/** Steps as a whole: nothing can be clicked, and what is folded opens without a script. */
function WholeSteps({ id, steps, prices }: WholeStepsProps) {
	return (
		<ShowingContext.Provider value={WHOLE}>
			{steps.map((step) => (
				<StepView
					key={step.id}
					id={id}
					step={step}
					chosen={false}
					found={undefined}
					wanted=""
					index={-1}
					marks=""
					price={prices.get(step.id)}
					dated={true}
					waits={false}
					places={NO_PLACES}
					childIds=""
					showChild={undefined}
				/>
			))}
		</ShowingContext.Provider>
	);
}

/** The steps on paper, in place of those in view. They are drawn when the browser is about to print. */
export function PrintedSteps({ open }: { readonly open: OpenConversation }) {
	const box = useRef<HTMLDivElement>(null);
	useEffect(() => {
		const { current } = box;
		if (current === null) return;
		const ended = new AbortController();
		const { signal } = ended;
		// At once, because the browser does not wait.
		addEventListener("beforeprint", () => render(<Paper open={open} />, current), { signal });
		addEventListener("afterprint", () => render(null, current), { signal });
		return () => {
			ended.abort();
			render(null, current);
		};
	}, [open]);
	return <div ref={box} class="printed" />;
}

function Paper({ open }: { readonly open: OpenConversation }) {
	const steps = stepsOf(open);
	return (
		<>
			{steps.length > PRINTED && (
				<p>
					These are the last {full(PRINTED)} of {full(steps.length)} steps. Export has all of them.
				</p>
			)}
			<WholeSteps id={open.id} steps={steps.slice(-PRINTED)} prices={open.attribution.peek().prices} />
		</>
	);
}

/** Offers the conversation as a file. */
export function ExportMenu({ open, label }: { readonly open: OpenConversation; readonly label: string }) {
	const said = useSignal("");
	return (
		<>
			<select
				aria-label="Export"
				value=""
				onChange={(event) => {
					const form = FORM_NAMES.find((name) => name === event.currentTarget.value);
					event.currentTarget.value = "";
					if (form === undefined) return;
					said.value = "exporting…";
					save(open, label, form).then(
						() => {
							said.value = "";
						},
						(error: unknown) => {
							said.value = `This could not be exported: ${problemOf(error).text}`;
						},
					);
				}}
			>
				<option value="">Export…</option>
				{FORM_NAMES.map((name) => (
					<option key={name} value={name} disabled={open.loadingEvents.value}>
						{name}
					</option>
				))}
			</select>
			<span role="status">{said.value}</span>
		</>
	);
}

/** Returns a page that opens without the service, and runs no script: its policy allows only its own style and images. */
async function toHtml(open: OpenConversation, label: string): Promise<string> {
	const { prices } = open.attribution.peek();
	const steps = stepsOf(open);
	const box = document.createElement("div");
	let body = "";
	for (let from = 0; from < steps.length; from += TOGETHER) {
		render(<WholeSteps id={open.id} steps={steps.slice(from, from + TOGETHER)} prices={prices} />, box);
		// The browser writes the elements, so that each text is escaped as it has to be.
		body += box.innerHTML;
		render(null, box);
		await new Promise((resolve) => setTimeout(resolve));
	}
	render(
		<>
			<h1>{label}</h1>
			<p class="small muted">{factsOf(open).join(" · ")}</p>
		</>,
		box,
	);
	const head = box.innerHTML;
	render(<title>{label}</title>, box);
	const title = box.innerHTML;
	render(null, box);
	const style = [...document.styleSheets]
		.flatMap(({ cssRules }) => [...cssRules].map(({ cssText }) => cssText))
		.join("\n");
	const policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";
	return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
${title}
<style>
${style}
</style>
</head>
<body>
<main class="exported">
${head}
${body}
</main>
</body>
</html>
`;
}

/** Returns what stands above the steps. */
function factsOf(open: OpenConversation): readonly string[] {
	const summary = open.summary.peek();
	return [
		open.id,
		summary?.agentKind ?? "",
		summary?.model ?? "",
		summary === undefined ? "" : costText(summary.accumulatedCost),
		`${full(open.steps.peek().length)} steps`,
		`exported from ${BASE_URL} on ${new Date().toISOString()}`,
	].filter(Boolean);
}

function costText(value: number | undefined): string {
	return value === undefined ? `cost ${NOT_REPORTED}` : cost(value);
}

async function toMarkdown(open: OpenConversation, label: string): Promise<string> {
	const { prices } = open.attribution.peek();
	const lines = [`# ${oneLine(label)}`, "", factsOf(open).map(oneLine).join(" · "), ""];
	for (const step of stepsOf(open)) {
		const { title, subject, tags, parts } = lookOfStep(step);
		const price = prices.get(step.id)?.cost;
		const facts = [
			dayAndTime(new Date(step.time)),
			step.duration === undefined ? "" : duration(step.duration),
			price === undefined ? "" : cost(price),
			...tags.map(({ word }) => word),
		];
		lines.push(`## ${oneLine([title, subject].filter(Boolean).join(": "))}`, "", facts.filter(Boolean).join(" · "), "");
		lines.push(...parts.flatMap(markdownOf));
	}
	return `${lines.join("\n")}\n`;
}

/** Returns a text without ends of lines and marks of HTML, for a heading. */
function oneLine(text: string): string {
	return text.replace(/\s+/g, " ").replaceAll("<", "&lt;");
}

function markdownOf(part: Part): readonly string[] {
	switch (part.kind) {
		case "markdown":
			return [part.text, ""];
		case "text":
			return fenced("", part.text);
		case "command":
			return fenced("sh", part.text);
		case "terminal":
			return fenced("", terminalText(part.text));
		case "code":
			return [...(part.label === "" ? [] : [`**${oneLine(part.label)}**`, ""]), ...fenced("", part.text)];
		case "diff": {
			const signs = { added: "+", removed: "-", same: " ", skipped: "@@" } as const;
			const lines = diffLines(part).lines.map(({ kind, text }) => `${signs[kind]}${text}`);
			return [`**${oneLine(part.path)}**`, "", ...fenced("diff", lines.join("\n"))];
		}
		case "picture":
			return [`![${oneLine(part.name)}](${part.address.replace(/\s/g, "")})`, ""];
		case "facts":
			return [...part.facts.map(([name, value]) => `- ${oneLine(name)}: ${oneLine(value)}`), ""];
		case "tasks":
			return [
				...part.tasks.map(
					({ status, title, notes }) =>
						`- [${status === "done" ? "x" : " "}] ${oneLine([title, notes].filter(Boolean).join(": "))}`,
				),
				"",
			];
		case "fold":
			return [`**${oneLine(part.title)}**`, "", ...part.parts.flatMap(markdownOf)];
	}
}

/** Returns a text as code, behind a fence that is longer than any in it. */
function fenced(language: string, text: string): readonly string[] {
	const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
	const fence = "`".repeat(longest + 1);
	return [`${fence}${language}`, text, fence, ""];
}

/** Returns the record and all events as the API returns them. */
async function toJson({ id }: OpenConversation): Promise<string> {
	const events: unknown[] = [];
	let after = "0";
	for (;;) {
		const path = `api/v1/conversations/${encodeURIComponent(id)}/events?page_size=1000&after_sequence=${after}`;
		const page = (await readObject(path)) ?? {};
		const entries: readonly unknown[] = Array.isArray(page.events) ? page.events : [];
		events.push(...entries);
		const last = entries.at(-1);
		if (typeof last !== "object" || last === null || !("sequence" in last) || !page.next_page_token) break;
		after = String(last.sequence);
	}
	return `${JSON.stringify({ record: await readRecord(id), events }, null, "\t")}\n`;
}
