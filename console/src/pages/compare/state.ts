import { timestampDate } from "@bufbuild/protobuf/wkt";
import { signal } from "@preact/signals";
import type { ConversationEventEntry } from "../../../../gen/conversations/v1/conversation_event_service_pb.js";
import type { ConversationSummary } from "../../../../gen/conversations/v1/summary_pb.js";
import { type PlainScore, plainScore } from "../../parts/score.tsx";
import { conversations, events, KEY_REFUSED, type Problem, problemOf, reports, scores } from "../../service/service.ts";
import { signOut } from "../../service/session.ts";

/** What two conversations are compared by. */
export interface Compared {
	readonly summary: ConversationSummary;
	/** Calls and cost by model, the dearest first. */
	readonly models: ReadonlyMap<string, { readonly calls: bigint; readonly cost: number }>;
	readonly steps: StepCounts;
	/** The scores that stand for the conversation, by their names. */
	readonly scores: ReadonlyMap<string, PlainScore>;
}

/** What the events of a conversation add up to. */
export interface StepCounts {
	/** Messages by who wrote them: user or agent. */
	readonly messages: ReadonlyMap<string, number>;
	/** Calls by the name of the tool. */
	readonly calls: ReadonlyMap<string, number>;
	/** Calls that failed, and errors of the conversation. */
	readonly failures: number;
	/** Milliseconds from the calls to their results, together. */
	readonly toolTime: number;
	/** How often each file was changed by a tool that names it. */
	readonly files: ReadonlyMap<string, number>;
	/** Whether there are more events than those that were counted. */
	readonly isCut: boolean;
}

/** Kinds of events that are steps. */
const KINDS: readonly string[] = [
	"MessageEvent",
	"ActionEvent",
	"ObservationEvent",
	"UserRejectObservation",
	"AgentErrorEvent",
	"ConversationErrorEvent",
	"ACPToolCallEvent",
];
const PAGE_SIZE = 1_000;
/** Number of scores of a conversation whose names are read at most. */
const MOST_SCORES = 10_000;
/** Number of names of scores that a list has at most. */
const MOST_NAMES = 16;
/** Number of events of a conversation that are read at most. */
export const MOST_EVENTS = 10_000;

/** Two conversations side by side. */
export class Comparison {
	/** Undefined until both are read. One that is not there is undefined in its place. */
	readonly loaded = signal<readonly [Compared | undefined, Compared | undefined] | undefined>(undefined);
	readonly problem = signal<Problem | undefined>(undefined);
	readonly #ids: readonly [string, string];
	readonly #abort = new AbortController();
	/** What was read last, by id. */
	readonly #known = new Map<string, Compared>();

	constructor(a: string, b: string) {
		this.#ids = [a, b];
		this.load();
	}

	/** Reads what has changed. */
	load(): void {
		void this.#load().catch((error: unknown) => {
			if (this.#abort.signal.aborted) return;
			const problem = problemOf(error);
			if (problem.kind === "key") signOut(KEY_REFUSED);
			this.problem.value = problem;
		});
	}

	close(): void {
		this.#abort.abort();
	}

	async #load(): Promise<void> {
		const { signal } = this.#abort;
		const [a, b] = this.#ids;
		const { conversations: found } = await conversations.listConversations({ filter: { ids: [a, b] } }, { signal });
		const of = async (id: string): Promise<Compared | undefined> => {
			const summary = found.find((one) => one.summary?.id === id)?.summary;
			return summary && (await this.#read(summary));
		};
		const read = await Promise.all([of(a), of(b)]);
		this.problem.value = undefined;
		this.loaded.value = read;
	}

	async #read(summary: ConversationSummary): Promise<Compared> {
		const { signal } = this.#abort;
		const { id, eventCount, accumulatedCost } = summary;
		const known = this.#known.get(id);
		const isKnown = known?.summary.eventCount === eventCount && known.summary.accumulatedCost === accumulatedCost;
		const [usage, steps] = isKnown
			? [undefined, known.steps]
			: await Promise.all([
					reports.reportUsage({ groupBy: ["model"], filter: { ids: [id] } }, { signal }),
					this.#steps(id),
				]);
		const models = new Map(
			usage?.rows.map(({ group, usage: of }) => [group[0] ?? "", { calls: of?.calls ?? 0n, cost: of?.cost ?? 0 }]),
		);
		// Scores change without events.
		const compared = { summary, models: isKnown ? known.models : models, steps, scores: await this.#scores(id) };
		this.#known.set(id, compared);
		return compared;
	}

	async #scores(conversationId: string): Promise<Compared["scores"]> {
		const { signal } = this.#abort;
		const names = new Set<string>();
		let [pageToken, read] = ["", 0];
		do {
			const page = await scores.listScores({ conversationId, pageSize: PAGE_SIZE, pageToken }, { signal });
			for (const { name } of page.scores) names.add(name);
			pageToken = page.nextPageToken;
			read += page.scores.length;
		} while (pageToken !== "" && read < MOST_SCORES);
		const standing = new Map<string, PlainScore>();
		const left = [...names].sort();
		while (left.length > 0) {
			const asked = { filter: { ids: [conversationId] }, scoreNames: left.splice(0, MOST_NAMES) };
			const { conversations: found } = await conversations.listConversations(asked, { signal });
			for (const [name, value] of Object.entries(found[0]?.scores ?? {})) {
				const plain = plainScore(value);
				if (plain !== undefined) standing.set(name, plain);
			}
		}
		return standing;
	}

	async #steps(conversationId: string): Promise<StepCounts> {
		const { signal } = this.#abort;
		const all: ConversationEventEntry[] = [];
		let pageToken = "";
		do {
			const page = await events.listConversationEvents(
				{ conversationId, filter: { kinds: [...KINDS] }, pageSize: PAGE_SIZE, pageToken },
				{ signal },
			);
			all.push(...page.events);
			pageToken = page.nextPageToken;
		} while (pageToken !== "" && all.length < MOST_EVENTS);
		return stepCountsOf(all, pageToken !== "");
	}
}

type Json = Readonly<Record<string, unknown>>;

/** Adds up events, in the order in which they arrived. */
function stepCountsOf(entries: readonly ConversationEventEntry[], isCut: boolean): StepCounts {
	const messages = new Map<string, number>();
	const calls = new Map<string, number>();
	const files = new Map<string, number>();
	/** Times of the actions that have no result yet, by their ids. */
	const begun = new Map<string, number>();
	const agentCalls = new Set<string>();
	let failures = 0;
	let toolTime = 0;
	for (const { event, happenedAt } of entries) {
		if (event === undefined) continue;
		const members = object(JSON.parse(event.membersJson || "{}"));
		const time = happenedAt === undefined ? 0 : timestampDate(happenedAt).getTime();
		switch (event.kind) {
			case "MessageEvent":
				add(messages, event.source === "user" ? "user" : "agent");
				break;
			case "ActionEvent": {
				add(calls, text(members.tool_name) || "tool");
				if (event.id !== undefined) begun.set(event.id, time);
				const file = changedFile(object(members.action));
				if (file !== "") add(files, file);
				break;
			}
			case "ACPToolCallEvent": {
				// Each call reports its progress in several events.
				const call = text(members.tool_call_id);
				if (!agentCalls.has(call)) add(calls, text(members.tool_kind) || "tool");
				agentCalls.add(call);
				if (members.is_error === true) failures += 1;
				break;
			}
			case "ConversationErrorEvent":
				failures += 1;
				break;
			default: {
				const action = text(members.action_id);
				const start = begun.get(action);
				if (start !== undefined) toolTime += Math.max(0, time - start);
				begun.delete(action);
				if (event.kind === "AgentErrorEvent" || hasFailed(object(members.observation))) failures += 1;
			}
		}
	}
	return { messages, calls, failures, toolTime, files, isCut };
}

/** Returns the file that an action changes; empty if it changes none that it names. */
function changedFile(action: Json): string {
	return action.command === "view" ? "" : text(action.path);
}

function hasFailed({ is_error: isError, exit_code: code }: Json): boolean {
	return isError === true || (typeof code === "number" && code > 0);
}

function add(counts: Map<string, number>, name: string): void {
	counts.set(name, (counts.get(name) ?? 0) + 1);
}

function object(value: unknown): Json {
	const isObject = (one: unknown): one is Json => typeof one === "object" && one !== null && !Array.isArray(one);
	return isObject(value) ? value : {};
}

function text(value: unknown): string {
	return typeof value === "string" ? value : "";
}
