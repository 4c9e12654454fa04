import { create } from "@bufbuild/protobuf";
import {
	type ConversationFilter,
	ConversationFilterSchema,
	ConversationOrder,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Score } from "../../gen/conversations/v1/score_service_pb.js";
import type { ConversationSummary } from "../../gen/conversations/v1/summary_pb.js";
import {
	type ConversationReads,
	type Reads,
	redactedEvents,
	redactedRecord,
	scoresIn,
} from "../conversations/conversation-reads.ts";
import { uuid } from "../conversations/read/filter.ts";
import { ServiceError } from "../errors.ts";
import { stringifyExactJson } from "../record/json/exact-json.ts";
import {
	type ExactJson,
	type ExactJsonObject,
	isJsonObject,
	listOf,
	memberOf,
	textOf,
} from "../record/json/json-value.ts";
import type { Route } from "../transports/http/router.ts";
import { readQuery, word } from "../transports/reads/parameters.ts";
import { atifOf, type TrajectoryEvent, type TrajectorySource } from "./atif.ts";

/** Forms of a trajectory: the Agent Trajectory Interchange Format, and messages of a chat with tools. */
export const trajectoryForms = ["atif", "messages"] as const;
export type TrajectoryForm = (typeof trajectoryForms)[number];

type TrajectoryReads = Pick<Reads, "get" | "list" | "events" | "scores">;

/** Maximum bytes of the events and comments of a trajectory, with those of its sub-agents: they are in memory together. */
const MAX_BYTES = 64 * 1024 * 1024;
const PAGE = 1_000;

/**
 * Returns the trajectory of a conversation as JSON text, with secrets redacted.
 *
 * @throws ServiceError `invalid_argument` when the id is no UUID, `not_found` when there is no such conversation or no
 *   event of it makes a step, `too_large` when its events have more than 64 MiB
 */
export async function trajectoryJson(reads: TrajectoryReads, id: string, form: TrajectoryForm): Promise<string> {
	const [summary] = await summariesOf(reads, create(ConversationFilterSchema, { ids: [uuid(id, "id")] }));
	if (summary === undefined) throw new ServiceError("not_found", "There is no such conversation");
	const source = await readSource(reads, summary);
	const trajectory = atifOf(source);
	if (trajectory === undefined)
		throw new ServiceError("not_found", "No event of this conversation makes a step of a trajectory");
	return stringifyExactJson(form === "atif" ? trajectory : messagesOf(trajectory));
}

/** Returns the summaries of the conversations that a filter selects, the earliest created last. */
async function summariesOf({ list }: Pick<TrajectoryReads, "list">, filter: ConversationFilter) {
	const summaries: ConversationSummary[] = [];
	for (let pageToken = ""; ; ) {
		const page = await list.list({
			...{ filter, pageToken, pageSize: PAGE, orderBy: ConversationOrder.CREATED },
			...{ full: false, secrets: "redacted" },
		});
		for (const { summary } of page.conversations) summaries.push(summary);
		pageToken = page.nextPageToken;
		if (pageToken === "") return summaries;
	}
}

/** Reads a conversation with those that it began. */
async function readSource(reads: TrajectoryReads, of: ConversationSummary): Promise<TrajectorySource> {
	const seen = new Set<string>();
	let bytes = 0;
	return await read(of);

	async function read(summary: ConversationSummary): Promise<TrajectorySource> {
		const { id } = summary;
		seen.add(id);
		const events: TrajectoryEvent[] = [];
		const take = (text: string) => {
			bytes += text.length;
			if (bytes > MAX_BYTES)
				throw new ServiceError("too_large", "The events have more than 64 MiB: read them with the list of events");
		};
		for await (const event of redactedEvents(reads, id)) {
			take(event.text ?? "");
			events.push(event);
		}
		const scores: Score[] = [];
		for await (const score of scoresIn(reads, id)) {
			take(score.comment);
			scores.push(score);
		}
		const children: TrajectorySource[] = [];
		const found = await summariesOf(reads, create(ConversationFilterSchema, { parentConversationId: id }));
		// A conversation can name any other as its parent, also one that it began.
		for (const child of found.reverse()) if (!seen.has(child.id)) children.push(await read(child));
		return { summary, record: await redactedRecord(reads, id), events, scores, children };
	}
}

/**
 * Returns a trajectory as messages of a chat with tools, the common form for fine-tuning. A call without a result is left
 * out, because a model is trained on calls that were answered; so are results without a call, and errors of the
 * conversation. `metadata.left_out` counts them beside what the trajectory leaves out.
 */
export function messagesOf(trajectory: ExactJsonObject): ExactJsonObject {
	const { agent, session_id: id, extra = {}, subagent_trajectories: children } = trajectory;
	const leftOut = { calls_without_result: 0, results_without_call: 0, errors: 0, subagents: listOf(children).length };
	const messages = listOf(trajectory.steps).flatMap((step): ExactJsonObject[] => {
		const source = memberOf(step, "source");
		const content = textOf(memberOf(step, "message"));
		const results = listOf(memberOf(memberOf(step, "observation"), "results"));
		if (source === "user") return [{ role: "user", content }];
		if (source === "system") {
			leftOut.results_without_call += results.length;
			if (memberOf(memberOf(step, "extra"), "kind") !== undefined) leftOut.errors += 1;
			else if (results.length === 0) return [{ role: "system", content }];
			return [];
		}
		const calls = listOf(memberOf(step, "tool_calls"));
		const answered = calls.flatMap((call): [ExactJson, ExactJson][] => {
			const result = results.find((one) => memberOf(one, "source_call_id") === memberOf(call, "tool_call_id"));
			return result === undefined ? [] : [[call, result]];
		});
		leftOut.calls_without_result += calls.length - answered.length;
		if (answered.length === 0 && content === "") return [];
		const reasoning = memberOf(step, "reasoning_content");
		return [
			{
				role: "assistant",
				content,
				...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
				...(answered.length === 0 ? {} : { tool_calls: answered.map(([call]) => callJson(call)) }),
			},
			...answered.map(([call, result]): ExactJsonObject => {
				const content = textOf(memberOf(result, "content"));
				return { role: "tool", tool_call_id: memberOf(call, "tool_call_id") ?? "", content };
			}),
		];
	});
	const known = memberOf(extra, "left_out");
	return {
		messages,
		tools: listOf(memberOf(agent, "tool_definitions")),
		metadata: {
			conversation_id: id ?? "",
			model: memberOf(agent, "model_name") ?? null,
			left_out: { ...(isJsonObject(known) ? known : {}), ...positive(leftOut) },
		},
	};
}

/** Returns a call. Arguments that were no JSON object are kept as they were, with the mark `raw_arguments`. */
function callJson(call: ExactJson): ExactJsonObject {
	const raw = memberOf(memberOf(call, "extra"), "raw_arguments");
	const given = raw ?? memberOf(call, "arguments") ?? {};
	return {
		id: memberOf(call, "tool_call_id") ?? "",
		type: "function",
		function: {
			name: memberOf(call, "function_name") ?? "",
			arguments: typeof given === "string" ? given : stringifyExactJson(given),
		},
		...(raw === undefined ? {} : { raw_arguments: true }),
	};
}

function positive(counts: Readonly<Record<string, number>>): ExactJsonObject {
	return Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0));
}

export const TRAJECTORY_PATH = "/api/v1/conversations/{id}/trajectory";

export function trajectoryRoute(basePath: string, reads: Pick<ConversationReads, "of">): Route {
	return {
		method: "GET",
		path: `${basePath}${TRAJECTORY_PATH}`,
		scope: "read",
		handle: async ({ params, search, principal }) => {
			if (principal === undefined) throw new ServiceError("unauthenticated", "The access key is missing");
			const form = word("form", readQuery(search, ["form"]).get("form") ?? trajectoryForms[0], trajectoryForms);
			return await trajectoryJson(reads.of(principal), params.id ?? "", form);
		},
	};
}
