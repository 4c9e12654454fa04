import type { Fact, Facts, ToolCall, ToolResult, Usage } from "./facts.ts";

/** The runs of a conversation, without ids of spans. Times are microseconds since the Unix epoch. */
export interface Run {
	/** Id of the event with which it began. */
	readonly id: string;
	readonly start: bigint;
	readonly end: bigint;
	/** Status in which it ended; undefined when its end has not arrived. */
	readonly status: string | undefined;
	readonly completedAt: bigint;
	/** Time of the event with which the next run began; undefined for the last run. */
	readonly nextStart: bigint | undefined;
	readonly facts: readonly Fact[];
	readonly chats: readonly Chat[];
	readonly tools: readonly Tool[];
}

/** A call of a model. */
export interface Chat {
	readonly responseId: string;
	readonly n: number;
	readonly start: bigint;
	readonly end: bigint;
	/** Whether `start` is not known but is when what came before it ended. */
	readonly isEstimated: boolean;
	readonly usage: Usage | undefined;
	readonly facts: readonly Fact[];
}

/** A call of a tool. */
export interface Tool {
	readonly id: string;
	/** Number of calls with the same id before it in the run. */
	readonly n: number;
	/** Empty when no event names it. */
	name: string;
	readonly start: bigint;
	end: bigint;
	call: ToolCall | undefined;
	result: ToolResult | undefined;
}

/** Statuses during which a run goes on. */
const ACTIVE: ReadonlySet<string> = new Set(["running", "waiting_for_confirmation"]);

/** A run while its facts are collected. */
interface Draft {
	readonly facts: Fact[];
	begin: Fact | undefined;
	end: Fact | undefined;
}

/**
 * Returns the runs of a conversation in order: each begins with a message of the user, with the status `running` or with
 * work of the agent, and ends with the first status in which the agent does not work. What follows until the next one
 * begins, such as the error that ended it, belongs to it.
 *
 * @param callsOfEvents whether a response of an event that no list of usage names is a call of a model, too
 */
export function runsOf(facts: Facts, callsOfEvents: boolean): Run[] {
	const drafts: Draft[] = [];
	for (const fact of facts.facts) {
		const begins =
			fact.status === "running" ||
			fact.prompt !== undefined ||
			fact.responseId !== undefined ||
			fact.call !== undefined;
		let draft = drafts.at(-1);
		if (draft === undefined || (begins && draft.end !== undefined)) {
			draft = { facts: [], begin: undefined, end: undefined };
			drafts.push(draft);
		}
		draft.facts.push(fact);
		if (begins) draft.begin ??= fact;
		if (fact.status !== undefined && !ACTIVE.has(fact.status)) draft.end ??= fact;
	}
	const begun = drafts.flatMap(({ begin, ...draft }) => (begin === undefined ? [] : [{ ...draft, begin }]));
	const usages = usagesByRun(
		facts.usages,
		begun.map(({ begin }) => begin.at),
		timesOfResponses(facts.facts),
	);
	return begun.map(({ begin, end, facts: own }, n) => {
		const last = own.at(-1) ?? begin;
		const run = { id: begin.id, start: begin.at, end: (end ?? last).at, facts: own };
		return {
			...run,
			status: end?.status,
			completedAt: (end ?? last).receivedAt,
			nextStart: begun[n + 1]?.begin.at,
			chats: chatsOf(run, usages.ofResponses, usages.others[n] ?? [], callsOfEvents),
			tools: toolsOf(run),
		};
	});
}

/**
 * Says which calls of models belong to a response that an event names, and to which run the others belong: that of the call
 * before, or the first one.
 */
function usagesByRun(usages: readonly Usage[], starts: readonly bigint[], responses: ReadonlyMap<string, bigint>) {
	const ofResponses = new Map<string, Usage>();
	const others: { readonly usage: Usage; readonly after: string | undefined }[][] = starts.map(() => []);
	const runAt = (time: bigint) => starts.findLastIndex((start) => start <= time);
	let after: string | undefined;
	for (const usage of usages) {
		const { responseId, n } = usage;
		if (n === 0 && responses.has(responseId)) {
			ofResponses.set(responseId, usage);
			after = responseId;
			continue;
		}
		const time = after === undefined ? starts[0] : responses.get(after);
		if (time !== undefined) others[runAt(time)]?.push({ usage, after });
	}
	return { ofResponses, others };
}

function timesOfResponses(facts: readonly Fact[]): ReadonlyMap<string, bigint> {
	const times = new Map<string, bigint>();
	for (const { responseId, at } of facts)
		if (responseId !== undefined && !times.has(responseId)) times.set(responseId, at);
	return times;
}

type Span = Pick<Run, "start" | "end" | "facts">;

function chatsOf(
	{ start: first, end: last, facts }: Span,
	usages: ReadonlyMap<string, Usage>,
	others: readonly { readonly usage: Usage; readonly after: string | undefined }[],
	callsOfEvents: boolean,
): Chat[] {
	const chats: Chat[] = [];
	const ends = new Map<string, bigint>();
	const byResponse = Map.groupBy(facts, ({ responseId }) => responseId);
	let before = first;
	for (const fact of facts) {
		const { responseId, at } = fact;
		if (responseId !== undefined && !ends.has(responseId)) {
			ends.set(responseId, at);
			const usage = usages.get(responseId);
			const latency = usage?.latency;
			const start = latency === undefined || at - latency < first ? before : at - latency;
			if (usage !== undefined || callsOfEvents)
				chats.push({
					...{ responseId, n: 0, start, end: at, isEstimated: latency === undefined || start === before, usage },
					facts: byResponse.get(responseId) ?? [],
				});
		}
		before = at;
	}
	let free = first;
	for (const { usage, after } of others) {
		const start = clamp((after === undefined ? undefined : ends.get(after)) ?? free, first, last);
		const end = clamp(start + (usage.latency ?? 0n), start, last);
		free = end;
		chats.push({ responseId: usage.responseId, n: usage.n, start, end, isEstimated: true, usage, facts: [] });
	}
	return chats;
}

function clamp(time: bigint, first: bigint, last: bigint): bigint {
	return time < first ? first : time > last ? (last < first ? first : last) : time;
}

/** Whether a call of an event, if it is one, is that of a tool. */
export function isCallOf({ id, call }: Tool, of: ToolCall | undefined): boolean {
	return of !== undefined && id === of.id && call?.actionId === of.actionId;
}

/** Pairs calls with their results: by the event that a result names, or else by the id of the call. */
function toolsOf({ end: last, facts }: Span): Tool[] {
	const tools: Tool[] = [];
	for (const { at, call } of facts) {
		if (call === undefined) continue;
		// Later events of the call of a remote agent complete it.
		const known = tools.find((tool) => isCallOf(tool, call));
		const tool = known ?? add(call.id, at);
		tool.name = call.name || tool.name;
		tool.call = { ...call, arguments: call.arguments ?? tool.call?.arguments };
	}
	let before = facts[0]?.at ?? last;
	for (const { at, result } of facts) {
		if (result !== undefined) {
			const { actionId, callId } = result;
			const same = tools.filter(({ id }) => id === callId);
			const tool =
				tools.find(({ call }) => actionId !== "" && call?.actionId === actionId) ??
				same.find((one) => one.result === undefined) ??
				same.at(-1) ??
				add(callId, before);
			tool.result = result;
			tool.name ||= result.tool;
			// A result can have the time of a clock that was set back.
			if (at > tool.start) tool.end = at;
			else tool.end = tool.start;
		}
		before = at;
	}
	return tools.toSorted((a, b) => Number(a.start - b.start));

	function add(id: string, start: bigint): Tool {
		const n = tools.filter((tool) => tool.id === id).length;
		const tool = { id, n, name: "", start, end: last < start ? start : last, call: undefined, result: undefined };
		tools.push(tool);
		return tool;
	}
}
