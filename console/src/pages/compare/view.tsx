import "./style.css";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { cost, duration, exactTime, full, scoreNumber } from "../../parts/format.ts";
import { Notice, ProblemNotice } from "../../parts/notice.tsx";
import { Reported } from "../../parts/reported.tsx";
import { ScoreValue } from "../../parts/score.tsx";
import { StatusMark } from "../../parts/status.tsx";
import { dateOf } from "../../parts/time.tsx";
import { useShortcuts } from "../../shell/keys.ts";
import { addressOf, go, lastList, query } from "../../shell/route.ts";
import { useTitle } from "../../shell/title.ts";
import { labelOf } from "../conversations/state.ts";
import { type Compared, Comparison, MOST_EVENTS } from "./state.ts";

/** Milliseconds between two reads. */
const INTERVAL = 10_000;

/** Two conversations side by side. */
export default function ComparePage() {
	useTitle("Compare");
	const [a, b] = [query.value.get("a") ?? "", query.value.get("b") ?? ""];
	useShortcuts([
		{ key: "Escape", meaning: "back to the list", run: () => go(lastList.value ?? addressOf(["conversations"])) },
	]);
	if (a === "" || b === "")
		return (
			<Notice title="Choose two conversations">
				<a href={addressOf(["conversations"])}>All conversations</a>
			</Notice>
		);
	return <Two key={`${a} ${b}`} a={a} b={b} />;
}

function Two({ a, b }: { readonly a: string; readonly b: string }) {
	const comparison = useMemo(() => new Comparison(a, b), []);
	useEffect(() => {
		const timer = setInterval(() => {
			if (!document.hidden) comparison.load();
		}, INTERVAL);
		return () => {
			clearInterval(timer);
			comparison.close();
		};
	}, []);
	const loaded = comparison.loaded.value;
	const problem = comparison.problem.value;
	if (problem !== undefined) return <ProblemNotice problem={problem} retry={() => comparison.load()} />;
	if (loaded === undefined) return <Notice title="Loading…" />;
	const [left, right] = loaded;
	if (left === undefined || right === undefined)
		return (
			<Notice title="Not found">
				<span>The service has no conversation with the id {left === undefined ? a : b}.</span>
			</Notice>
		);
	return (
		<>
			<h1 class="visually-hidden">Two conversations</h1>
			<div class="scroll" role="region" aria-label="Two conversations" tabIndex={0}>
				<table class="card compare">
					<thead>
						<tr>
							<th scope="col">
								<span class="visually-hidden">What is compared</span>
							</th>
							{[left, right].map(({ summary }) => (
								<th key={summary.id} scope="col">
									<a href={addressOf(["conversations", summary.id])}>{labelOf(summary)}</a>
								</th>
							))}
							<th scope="col" class="number">
								Difference
							</th>
						</tr>
					</thead>
					<Group name="Facts" rows={facts(left, right)} />
					<Group name="Scores" rows={scores(left, right)} />
					<Group name="Cost and tokens" rows={usage(left, right)} />
					<Group name="Steps" rows={steps(left, right)} />
					<Group
						name="Files changed"
						rows={counted(left.steps.files, right.steps.files)}
						none="by tools that name them"
					/>
				</table>
			</div>
			{(left.steps.isCut || right.steps.isCut) && (
				<p class="small muted">Steps and files are those of the first {full(MOST_EVENTS)} events.</p>
			)}
		</>
	);
}

interface Row {
	readonly name: ComponentChildren;
	readonly key: string;
	readonly values: readonly [ComponentChildren, ComponentChildren];
	/** How much larger the second value is; empty if they are no numbers or equal. */
	readonly difference?: string;
}

function Group({ name, rows, none }: { readonly name: string; readonly rows: readonly Row[]; readonly none?: string }) {
	return (
		<tbody>
			<tr class="group">
				<th scope="rowgroup" colSpan={4}>
					{name} {rows.length === 0 && <span class="muted">none {none}</span>}
				</th>
			</tr>
			{rows.map(({ key, name: title, values, difference = "" }) => (
				<tr key={key}>
					<th scope="row">{title}</th>
					<td>{values[0]}</td>
					<td>{values[1]}</td>
					<td class="number muted">{difference}</td>
				</tr>
			))}
		</tbody>
	);
}

function facts(left: Compared, right: Compared): Row[] {
	const row = (name: string, value: (of: Compared) => ComponentChildren): Row => ({
		name,
		key: name,
		values: [value(left), value(right)],
	});
	const length = ({ summary: { createdAt, lastActivityAt, updatedAt } }: Compared): number => {
		const end = lastActivityAt ?? updatedAt;
		return createdAt === undefined || end === undefined ? 0 : dateOf(end).getTime() - dateOf(createdAt).getTime();
	};
	const tags = ({ summary }: Compared) =>
		Object.entries(summary.tags).map(([key, value]) => (
			<span key={key} class="tag">
				{key}: {value}
			</span>
		));
	return [
		row("Status", ({ summary }) => <StatusMark status={summary.executionStatus} />),
		row("Agent", ({ summary }) => summary.agentKind),
		row("Model", ({ summary }) => summary.model),
		row("Sender", ({ summary }) => summary.sender),
		row("Tags", tags),
		row("Started", ({ summary }) => summary.createdAt && exactTime(dateOf(summary.createdAt))),
		numbers("Duration", length(left), length(right), duration),
		row("Last error", ({ summary }) => summary.lastError?.code),
	];
}

function scores(left: Compared, right: Compared): Row[] {
	return [...new Set([...left.scores.keys(), ...right.scores.keys()])].sort().map((name) => {
		const [a, b] = [left.scores.get(name), right.scores.get(name)];
		if (typeof a === "number" && typeof b === "number") return numbers(name, a, b, scoreNumber);
		return { name, key: name, values: [<ScoreValue name={name} value={a} />, <ScoreValue name={name} value={b} />] };
	});
}

function usage(left: Compared, right: Compared): Row[] {
	const tokens = (name: string, of: (tokens: NonNullable<Compared["summary"]["tokens"]>) => bigint): Row => {
		const value = ({ summary }: Compared) => (summary.tokens === undefined ? undefined : Number(of(summary.tokens)));
		return numbers(name, value(left), value(right), full);
	};
	const models = [...new Set([...left.models.keys(), ...right.models.keys()])];
	return [
		numbers("Cost", left.summary.accumulatedCost, right.summary.accumulatedCost, cost),
		tokens("Prompt tokens", ({ promptTokens }) => promptTokens),
		tokens("of them cached", ({ cacheReadTokens }) => cacheReadTokens),
		tokens("Completion tokens", ({ completionTokens }) => completionTokens),
		tokens("of them reasoning", ({ reasoningTokens }) => reasoningTokens),
		...models.map((model) => {
			const calls = ({ models: of }: Compared): number => Number(of.get(model)?.calls ?? 0n);
			return numbers(`Calls of ${model || "a model"}`, calls(left), calls(right), full);
		}),
	];
}

function steps(left: Compared, right: Compared): Row[] {
	const messages = ["user", "agent"].map((by) =>
		numbers(`Messages of the ${by}`, left.steps.messages.get(by) ?? 0, right.steps.messages.get(by) ?? 0, full),
	);
	return [
		numbers("Events", Number(left.summary.eventCount), Number(right.summary.eventCount), full),
		...messages,
		...counted(left.steps.calls, right.steps.calls, "Calls of "),
		numbers("Failures", left.steps.failures, right.steps.failures, full),
		numbers("Time in tools", left.steps.toolTime, right.steps.toolTime, duration),
	];
}

/** Returns a row for each name that one of them has, the most frequent first. */
function counted(left: ReadonlyMap<string, number>, right: ReadonlyMap<string, number>, before = ""): Row[] {
	const sum = (name: string): number => (left.get(name) ?? 0) + (right.get(name) ?? 0);
	return [...new Set([...left.keys(), ...right.keys()])]
		.sort((a, b) => sum(b) - sum(a) || (a < b ? -1 : 1))
		.map((name) => numbers(`${before}${name}`, left.get(name) ?? 0, right.get(name) ?? 0, full));
}

/** @param left and `right`: undefined if they were not reported, which makes no difference to show */
function numbers(
	name: string,
	left: number | undefined,
	right: number | undefined,
	write: (value: number) => string,
): Row {
	const by = left === undefined || right === undefined ? 0 : right - left;
	const difference = by === 0 ? "" : `${by > 0 ? "+" : "−"}${write(Math.abs(by))}`;
	const shown = (value: number | undefined) => <Reported value={value} format={write} />;
	return { name, key: name, values: [shown(left), shown(right)], difference };
}
