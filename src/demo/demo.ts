import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { JsonObject } from "@bufbuild/protobuf";
import { z } from "zod";
import { STORIES, type Step, type Story } from "./stories.ts";

/** Number of stories that have ended when the demo begins. */
const ENDED = 3;
/** Maximum number of conversations that run live, one after the other. */
const MAX_LIVE = 200;
/** Milliseconds between the ended conversations, and between two that run live. */
const AGE = 3_600_000;
const PAUSE = 8_000;
/** Variables that a demo takes from the environment. With all others, it could meet data that is not invented. */
const TAKEN = /^(?:HTTP_ADDRESS|GRPC_ADDRESS|BASE_PATH|CONSOLE|LOG_LEVEL|LOG_FORMAT|PATH)$/;

/** Returns the environment of a demo: an empty database that is removed when the process ends. */
export function demoEnvironment(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
	// On Linux, this folder is in memory.
	const folder = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "demo-"));
	process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
	const taken = Object.entries(environment).filter(([name]) => TAKEN.test(name));
	return {
		...Object.fromEntries(taken),
		DATABASE_URL: `sqlite:${join(folder, "conversations.db")}`,
		// The endpoint of the demo is on this machine, and its secret is stored encrypted.
		ENCRYPTION_KEY: randomBytes(32).toString("base64"),
		FORWARD_PRIVATE: "on",
	};
}

const SPENT = 0.78;

/**
 * Posts invented conversations to the webhooks as an agent server does: some that have ended, then others that run live,
 * one after the other. An endpoint is told of them, and a budget is near its threshold.
 *
 * @param webhooks URL of the webhooks, without a slash at its end
 * @param key an access key with the scopes `ingest`, `read` and `forward`
 * @throws Error when a post fails
 */
export async function playDemo(webhooks: string, key: string, signal: AbortSignal): Promise<void> {
	const post = async (path: string, body: unknown) => {
		const response = await fetch(`${webhooks}/${path}`, {
			method: "POST",
			headers: { "Content-Type": "application/json", "X-Access-Token": key },
			body: JSON.stringify(body),
			signal,
		});
		if (!response.ok) throw new Error(`the post to ${path} was answered with ${response.status}`);
		await response.body?.cancel();
	};
	const url = await startReceiver(signal);
	const changes = ["STARTED", "RUNNING", "FINISHED", "FAILED", "STUCK", "WAITING", "BUDGET"];
	await post("../endpoints", { name: "demo", url, changes });
	for (const [n, story] of STORIES.slice(0, ENDED).entries())
		await tell(story, Date.now() - (ENDED - n) * AGE, post, async () => undefined);
	const usage = await fetch(`${webhooks}/../usage`, { headers: { "X-Access-Token": key }, signal });
	const { total } = z.object({ total: z.object({ cost: z.number() }) }).parse(await usage.json());
	await post("../budgets", { name: "demo", amount: Math.round((total.cost / SPENT) * 100) / 100, period: "month" });
	for (let n = 0; n < MAX_LIVE; n++) {
		const story = STORIES[(ENDED + n) % STORIES.length];
		if (story === undefined) return;
		await tell(story, Date.now(), post, (milliseconds) => delay(milliseconds, undefined, { signal }));
		await delay(PAUSE, undefined, { signal });
	}
}

/** Starts a receiver on this machine that accepts each delivery. Returns its URL. */
async function startReceiver(signal: AbortSignal): Promise<string> {
	const server = createServer((request, response) => {
		request.resume();
		response.end("accepted by the demo");
	});
	server.listen(0, "127.0.0.1");
	await once(server, "listening");
	signal.addEventListener("abort", () => {
		server.close();
		server.closeAllConnections();
	});
	const address = server.address();
	if (address === null || typeof address === "string") throw new Error("the receiver of the demo has no port");
	return `http://127.0.0.1:${address.port}/`;
}

/**
 * Posts one story.
 *
 * @param begin when the conversation begins, in milliseconds since 1970
 * @param wait lets the milliseconds of a step pass
 */
async function tell(
	story: Story,
	begin: number,
	post: (path: string, body: unknown) => Promise<void>,
	wait: (milliseconds: number) => Promise<void>,
): Promise<void> {
	const conversationId = randomUUID();
	let spent = 0;
	let time = begin;
	let parent: string | null = null;
	await post("conversations", record("running"));
	await postEvents([state("execution_status", "running")]);
	for (const step of story.steps) {
		await wait(step.seconds * 1000);
		time += step.seconds * 1000;
		await postEvents(eventsOf(step));
	}
	await postEvents([state("execution_status", story.status)]);
	await post("conversations", record(story.status));

	function eventsOf({ cost, seconds, events }: Step): JsonObject[] {
		const response = randomUUID();
		const action = randomUUID();
		spent += cost ?? 0;
		const filled = events.map((event, n) => ({
			...event,
			...(event.llm_response_id === true && { llm_response_id: response }),
			...(event.tool_call_id === true && { tool_call_id: response }),
			...(event.kind === "ActionEvent" && { id: action, tool_call: { ...objectOf(event.tool_call), id: response } }),
			...(event.kind === "ObservationEvent" && { action_id: action }),
			// A result comes after its call.
			...(n > 0 && { timestamp: timeAfter((seconds * 1000) / 4) }),
		}));
		return cost === undefined ? filled : [...filled, state("stats", stats())];
	}

	async function postEvents(events: readonly JsonObject[]): Promise<void> {
		const filled = events.map((event) => {
			const id = typeof event.id === "string" ? event.id : randomUUID();
			const filled = { timestamp: timeAfter(), ...event, id, parent_id: parent };
			parent = id;
			return filled;
		});
		await post(`events/${conversationId}`, filled);
	}

	/** Returns a time of the present step, without an offset as agent servers send it. */
	function timeAfter(after = 0): string {
		return new Date(time + after).toISOString().slice(0, -1);
	}

	function record(status: string): JsonObject {
		const { title, model, tags } = story;
		return {
			id: conversationId,
			title,
			execution_status: status,
			workspace: { kind: "LocalWorkspace", working_dir: "/workspace" },
			agent: { kind: "Agent", llm: { model, usage_id: "agent" }, tools: [] },
			stats: stats(),
			tags: { ...tags },
			created_at: new Date(begin).toISOString(),
			updated_at: new Date(time).toISOString(),
		};
	}

	function stats(): JsonObject {
		const { model } = story;
		const metrics = { model_name: model, accumulated_cost: spent, accumulated_token_usage: tokensOf(model, spent) };
		return { usage_to_metrics: { agent: metrics } };
	}
}

function state(key: string, value: JsonObject | string): JsonObject {
	return { kind: "ConversationStateUpdateEvent", source: "environment", key, value };
}

/** Returns invented numbers of tokens that fit a cost in dollars. */
function tokensOf(model: string, cost: number): JsonObject {
	return {
		model,
		prompt_tokens: Math.round(cost * 250_000),
		completion_tokens: Math.round(cost * 9_000),
		cache_read_tokens: Math.round(cost * 180_000),
		cache_write_tokens: Math.round(cost * 20_000),
		reasoning_tokens: Math.round(cost * 1_000),
		context_window: 200_000,
		per_turn_token: Math.round(cost * 259_000),
		response_id: "",
	};
}

function objectOf(value: unknown): JsonObject {
	return typeof value === "object" && value !== null && !Array.isArray(value)
		? Object.fromEntries(Object.entries(value))
		: {};
}
