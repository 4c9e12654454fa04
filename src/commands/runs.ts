import { get } from "node:http";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import { ConversationReconcileService } from "../../gen/conversations/v1/conversation_reconcile_service_pb.js";
import {
	type ConversationFilter,
	ConversationOrder,
	ConversationService,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { ConversationSpaceService } from "../../gen/conversations/v1/conversation_space_service_pb.js";
import { COMMAND } from "../access/access-keys.ts";
import type { Config } from "../config/config.ts";
import { dueBy } from "../conversations/retention.ts";
import { ServiceError } from "../errors.ts";
import { writeExport } from "../store/export/file.ts";
import { TRAJECTORY_PATH, type TrajectoryForm, trajectoryForms, trajectoryJson } from "../trajectories/trajectories.ts";
import { filterOption, type Reached, reachService } from "./call.ts";
import { durationOption, UsageError, type Values } from "./options.ts";
import { conversations, print, showError, showProgress, tableOf } from "./output.ts";

/** The commands that call RPCs several times: step by step, or page by page. */

/** The command `compact`: compresses the texts of events, and returns free pages. */
export async function compact(config: Config): Promise<void> {
	const show = showProgress((total) => `${total} events`, "examined");
	await reachService(config, async ({ transport }) => {
		const client = createClient(ConversationSpaceService, transport);
		let compressed = 0n;
		for (let after = 0n, hasMore = true; hasMore; ) {
			const step = await client.compactEvents({ after });
			compressed += step.compressed;
			({ through: after, hasMore } = step);
			if (step.newest > 0n) show(Number(after), Number(step.newest));
		}
		print(`${compressed} ${compressed === 1n ? "text of an event was" : "texts of events were"} compressed.`);
		const space = { returned: 0n, free: 0n };
		for (let hasMore = true; hasMore; ) {
			const step = await client.returnSpace({});
			space.returned += step.returnedBytes;
			space.free = step.freeBytes;
			({ hasMore } = step);
		}
		const mebibytes = (bytes: bigint) => `${Math.round(Number(bytes) / 2 ** 20)} MiB`;
		if (config.database.engine === "sqlite")
			print(
				`${mebibytes(space.returned)} were returned to the file system, ${mebibytes(space.free)} stay for new data.`,
			);
	});
}

/** The command `retention dry-run`: counts what each rule of retention would remove now. */
export async function countDue(config: Config): Promise<void> {
	const now = BigInt(Date.now()) * 1000n;
	const rows: unknown[][] = [["RULE", "DAYS", "CONVERSATIONS"]];
	await reachService(config, async ({ transport }) => {
		const client = createClient(ConversationEraseService, transport);
		for (const rule of config.RETENTION_RULES) {
			const { matching } = await client.deleteConversations({ filter: dueBy(rule, now), dryRun: true, max: 1 });
			rows.push([rule.name, rule.days, matching]);
		}
	});
	for (const line of tableOf(rows)) print(line);
}

const MAX_LINES = 20;

/** The command `reconcile`: compares an agent server with the store, and takes in what is missing. */
export async function reconcile(config: Config, _: unknown, options: Values): Promise<void> {
	const { "agent-server": url, sender: senders = [] } = options;
	if (url === undefined) throw new UsageError("Give the URL of the agent server with --agent-server");
	const key = config.AGENT_SERVER_KEY?.export().toString() ?? "";
	const done = await reachService(config, async ({ transport }) => {
		const client = createClient(ConversationReconcileService, transport);
		await client.startReconciliation({ agentServer: url, key, senders: [...senders] });
		return await client.getReconciliation({});
	});
	const { conversations, events, records, gapsClosed, failures, gone, goneIds, error } = done;
	const fetched = `${counted(events, "event")} and ${counted(records, "record")} fetched`;
	const summary = `${counted(conversations, "conversation")} looked at, ${fetched}, ${counted(gapsClosed, "gap")} closed, ${counted(gone, "conversation")} no longer known to ${new URL(url).host}`;
	if (error !== "") throw new Error(`${error} (${summary})`);
	if (failures > 0n)
		throw new Error(`${counted(failures, "conversation")} could not be taken in; the log has the reasons (${summary})`);
	print(`${summary}.`);
	const shown = goneIds.slice(0, MAX_LINES);
	for (const id of shown) print(`no longer known: ${id}`);
	if (Number(gone) > shown.length) print(`and ${Number(gone) - shown.length} more`);
}

/** Number of ids that are erased at a time. A SQLite database is cleaned once for those that wait together. */
const TOGETHER = 20;
/**
 * Number of conversations that a request erases by a policy, after which a SQLite database is cleaned, and the pause in
 * milliseconds after it, so that posts go on.
 */
const STEP = 100;
const PAUSE = 200;

export async function erase(config: Config, ids: readonly string[], options: Values): Promise<void> {
	const { "older-than": age, "with-children": withChildren = false, status, owner, execute = false } = options;
	if ((ids.length === 0) === (age === undefined)) throw new UsageError("Give either ids or --older-than");
	if (age !== undefined) {
		if (withChildren) throw new UsageError("--with-children is only for ids");
		return await eraseByPolicy(config, age, options);
	}
	if (status !== undefined || owner !== undefined || execute)
		throw new UsageError("--status, --owner and --execute are only for --older-than");
	await eraseByIds(config, ids, withChildren);
}

/** @throws Error that names the ids of which there is no conversation, after the others were erased */
async function eraseByIds(config: Config, ids: readonly string[], withChildren: boolean): Promise<void> {
	const unknown: string[] = [];
	let erased = 0n;
	await reachService(config, async ({ transport }) => {
		const client = createClient(ConversationEraseService, transport);
		// With children, one of the ids may be below another one.
		const together = withChildren ? 1 : TOGETHER;
		for (let at = 0; at < ids.length; at += together) {
			const some = ids.slice(at, at + together);
			const answers = await Promise.allSettled(some.map((id) => client.deleteConversation({ id, withChildren })));
			for (const [n, answer] of answers.entries())
				if (answer.status === "fulfilled") erased += answer.value.erased;
				else if (ConnectError.from(answer.reason).code === Code.NotFound) unknown.push(some[n] ?? "");
				else throw answer.reason;
		}
	});
	if (unknown.length > 0) throw new Error(`there is no conversation ${unknown.join(", ")}; ${were(erased)}`);
	print(were(erased));
}

/** Erases the conversations without activity for a time, or lists them. */
async function eraseByPolicy(config: Config, age: string, { status, owner, execute }: Values): Promise<void> {
	const until = new Date(Date.now() - durationOption("older-than", age));
	const policy = { activity_to: until.toISOString(), execution_status: status ?? "", owner: owner ?? "" };
	const filter = filterOption(`${new URLSearchParams(policy)}`);
	const show = showProgress(conversations, "erased");
	await reachService(config, async ({ transport }) => {
		const client = createClient(ConversationEraseService, transport);
		if (execute !== true) {
			const { ids, matching } = await client.deleteConversations({ filter, dryRun: true, max: 1000 });
			for (const id of Number(matching) > ids.length ? [...ids, "…"] : ids) print(id);
			return print(`${counted(matching, "conversation")} would be erased. Add --execute to erase them.`);
		}
		let erased = 0n;
		for (;;) {
			const step = await client.deleteConversations({ filter, max: STEP });
			erased += step.erased;
			const left = step.matching - step.erased;
			show(Number(erased), Number(erased + left));
			if (left === 0n || step.erased === 0n) return print(were(erased));
			await delay(PAUSE);
		}
	});
}

function were(erased: bigint): string {
	return `${counted(erased, "conversation")} ${erased === 1n ? "was" : "were"} erased.`;
}

function counted(count: bigint, noun: string): string {
	return `${count} ${noun}${count === 1n ? "" : "s"}`;
}

/** The command `export --format trajectories`: writes a line for each conversation that has a step. */
export async function exportTrajectories(config: Config, file: string, options: Values): Promise<void> {
	const { form: name = trajectoryForms[0], filter: search = "" } = options;
	const form = trajectoryForms.find((one) => one === name);
	if (form === undefined) throw new UsageError(`--form must be one of ${trajectoryForms.join(", ")}`);
	if (options.all === true || options["after-update"] !== undefined || options["after-event"] !== undefined)
		throw new UsageError("--all, --after-update and --after-event are not for --format trajectories");
	const filter = filterOption(search);
	const counts = { written: 0, empty: 0, failed: 0 };
	await reachService(config, async (reached) => {
		const lines = async function* (): AsyncGenerator<string> {
			for await (const id of idsOf(reached, filter)) {
				try {
					yield `${await trajectoryOf(reached, id, form)}\n`;
					counts.written += 1;
				} catch (error) {
					if (!(error instanceof ServiceError)) throw error;
					if (error.kind === "not_found") counts.empty += 1;
					else {
						counts.failed += 1;
						showError({ err: error }, `No trajectory of ${id}`);
					}
				}
			}
		};
		await writeExport(lines(), file);
	});
	const { written, empty, failed } = counts;
	const result = `${file} has the trajectories of ${written} conversations; ${empty} have no step, ${failed} cannot be read.`;
	if (file === "-") process.stderr.write(`${result}\n`);
	else print(result);
}

/** Returns the ids of the conversations that a filter selects, the earliest created last. */
async function* idsOf({ transport }: Reached, filter: ConversationFilter): AsyncGenerator<string> {
	const client = createClient(ConversationService, transport);
	for (let pageToken = ""; ; ) {
		const page = await client.listConversations({
			...{ filter, pageToken, pageSize: 1_000, orderBy: ConversationOrder.CREATED },
		});
		for (const { summary } of page.conversations) if (summary !== undefined) yield summary.id;
		pageToken = page.nextPageToken;
		if (pageToken === "") return;
	}
}

async function trajectoryOf({ by }: Reached, id: string, form: TrajectoryForm): Promise<string> {
	if ("parts" in by) return await trajectoryJson(by.parts.reads.of(COMMAND), id, form);
	const { promise, resolve, reject } = Promise.withResolvers<[number, string]>();
	get({ ...by, path: `${TRAJECTORY_PATH.replace("{id}", id)}?form=${form}` }, (response) => {
		text(response).then((body) => resolve([response.statusCode ?? 0, body]), reject);
	}).on("error", reject);
	const [status, body] = await promise;
	if (status === 200) return body;
	throw new ServiceError(status === 404 ? "not_found" : "internal", `HTTP ${status}: ${body}`);
}
