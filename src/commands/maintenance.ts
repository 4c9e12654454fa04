import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import { ConversationSearchService } from "../../gen/conversations/v1/conversation_search_service_pb.js";
import { ConversationSpaceService } from "../../gen/conversations/v1/conversation_space_service_pb.js";
import {
	ConversationUsageService,
	type GetUsageRebuildResponse,
} from "../../gen/conversations/v1/conversation_usage_service_pb.js";
import type { Config } from "../config/config.ts";
import { dueBy } from "../conversations/retention.ts";
import { showProgress } from "../progress.ts";
import { spaceMethods, usageMethods } from "../rpc/command-methods.ts";
import type { RpcMethod } from "../rpc/rpc-method.ts";
import { callAsCommand, type OpenedStore, untilEnded } from "./admin.ts";
import { tableOf } from "./output.ts";

/**
 * The commands that rewrite or examine what is stored: `compact` and `views reset`, `search rebuild`, `retention dry-run`,
 * `usage rebuild`. Each is a client of a service of that subject.
 */

/** Compresses the texts of events and returns free pages, step by step. Returns sentences about it. */
export async function compactStore(config: Config): Promise<readonly string[]> {
	const show = showProgress((total) => `${total} events`, "examined");
	return await callAsCommand(
		config,
		ConversationSpaceService,
		async (client) => {
			let compressed = 0n;
			for (let after = 0n, hasMore = true; hasMore; ) {
				const step = await client.compactEvents({ after });
				compressed += step.compressed;
				({ through: after, hasMore } = step);
				if (step.newest > 0n) show(Number(after), Number(step.newest));
			}
			let returned = 0n;
			for (;;) {
				const { returnedBytes, freeBytes, hasMore } = await client.returnSpace({});
				returned += returnedBytes;
				if (hasMore) continue;
				return [
					`${compressed} ${compressed === 1n ? "text of an event was" : "texts of events were"} compressed.`,
					...(config.database.engine === "sqlite"
						? [
								`${mebibytes(returned)} MiB were returned to the file system, ${mebibytes(freeBytes)} MiB stay for new data.`,
							]
						: []),
				];
			}
		},
		async ({ store }) => spaceMethods(store),
	);
}

/** Derives the views anew. Returns a sentence about it. */
export async function resetViews(config: Config): Promise<string> {
	await callAsCommand(
		config,
		ConversationSpaceService,
		(client) => client.resetViews({}),
		async ({ store }) => spaceMethods(store),
	);
	return "The views were derived anew from what is stored.";
}

function mebibytes(bytes: bigint): number {
	return Math.round(Number(bytes) / 2 ** 20);
}

/** Lets the index of search be written anew. Returns a sentence about it. */
export async function rebuildSearch(config: Config): Promise<string> {
	await callAsCommand(config, ConversationSearchService, (client) => client.rebuildSearchIndex({}));
	return "The running service, or else the next one that starts, writes the index of search anew.";
}

/** Counts what each rule of retention would remove now, and erases nothing. Returns the lines of a table. */
export async function countDue(config: Config): Promise<readonly string[]> {
	const now = BigInt(Date.now()) * 1000n;
	return await callAsCommand(config, ConversationEraseService, async (client) => {
		const rows: string[][] = [];
		for (const rule of config.retentionRules) {
			const { matching } = await client.deleteConversations({ filter: dueBy(rule, now), dryRun: true, max: 1 });
			rows.push([rule.name, `${rule.days}`, `${matching}`]);
		}
		return tableOf([["RULE", "DAYS", "CONVERSATIONS"], ...rows]);
	});
}

/** Maximum number of differences in the report. */
const MAX_DIFFERENCES = 20;

/**
 * Counts the usage of all conversations anew: see `rebuildUsage`.
 *
 * @param onProgress receives the numbers of conversations that are counted, and of all
 * @returns the lines of a report
 * @throws Error when the run ended early
 */
export async function runUsageRebuild(
	config: Config,
	onProgress: (done: number, total: number) => void,
): Promise<readonly string[]> {
	return await callAsCommand(
		config,
		ConversationUsageService,
		async (client) => {
			await client.startUsageRebuild({});
			const state = await untilEnded(
				() => client.getUsageRebuild({}),
				({ conversations, total }) => onProgress(Math.min(Number(conversations), Number(total)), Number(total)),
			);
			return reportOf(state);
		},
		usageMethodsOf,
	);
}

/** Returns the methods of `ConversationUsageService` for a command that has opened the store. */
async function usageMethodsOf({ store, opened }: OpenedStore): Promise<readonly RpcMethod[]> {
	const stopping = new AbortController();
	opened.defer(() => stopping.abort());
	return usageMethods(store, stopping.signal);
}

function reportOf(state: GetUsageRebuildResponse): string[] {
	const { conversations, corrected, differences, error } = state;
	const summary = `${conversations} conversations counted anew: ${conversations - corrected} equal, ${corrected} corrected`;
	if (error !== "") throw new Error(`${error} (${summary})`);
	const lines = differences
		.slice(0, MAX_DIFFERENCES)
		.map(
			({ conversationId, costBefore, cost, callsBefore, calls }) =>
				`corrected: ${conversationId}: cost ${costBefore} to ${cost}, calls ${callsBefore} to ${calls}`,
		);
	const more = corrected > BigInt(lines.length) ? [`and ${corrected - BigInt(lines.length)} more`] : [];
	return [`${summary}.`, ...lines, ...more];
}
