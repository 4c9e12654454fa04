import { stringifyExactJson } from "../record/json/exact-json.ts";
import { type ExactJson, type ExactJsonObject, memberOf } from "../record/json/json-value.ts";
import { listOf, textOr } from "./atif.ts";

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
		const content = textOr(memberOf(step, "message"), "");
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
				const content = textOr(memberOf(result, "content"), "");
				return { role: "tool", tool_call_id: memberOf(call, "tool_call_id") ?? "", content };
			}),
		];
	});
	return {
		messages,
		tools: listOf(memberOf(agent, "tool_definitions")),
		metadata: {
			conversation_id: id ?? "",
			model: memberOf(agent, "model_name") ?? null,
			left_out: { ...countsIn(memberOf(extra, "left_out")), ...positive(leftOut) },
		},
	};
}

function callJson(call: ExactJson): ExactJsonObject {
	return {
		id: memberOf(call, "tool_call_id") ?? "",
		type: "function",
		function: {
			name: memberOf(call, "function_name") ?? "",
			arguments: stringifyExactJson(memberOf(call, "arguments") ?? {}),
		},
	};
}

function countsIn(json: ExactJson | undefined): ExactJsonObject {
	return typeof json === "object" && json !== null && !Array.isArray(json) ? json : {};
}

function positive(counts: Readonly<Record<string, number>>): ExactJsonObject {
	return Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0));
}
