import { createClient } from "@connectrpc/connect";
import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import { ConversationSpaceService } from "../../gen/conversations/v1/conversation_space_service_pb.js";
import {
	ConversationUsageService,
	type GetUsageRebuildResponse,
} from "../../gen/conversations/v1/conversation_usage_service_pb.js";
import type { Config } from "../config/config.ts";
import { dueBy } from "../conversations/retention.ts";
import { showProgress } from "../progress.ts";
import { reachService, untilEnded } from "./call.ts";
import { tableOf } from "./output.ts";

/** The commands `compact`, `retention dry-run` and `usage rebuild`. Each is a client of a service of that subject. */

/** Compresses the texts of events and returns free pages, step by step. Returns sentences about it. */
export async function compactStore(config: Config): Promise<readonly string[]> {
	const show = showProgress((total) => `${total} events`, "examined");
	return await reachService(config, async ({ transport }) => {
		const client = createClient(ConversationSpaceService, transport);
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
			const sentence = `${compressed} ${compressed === 1n ? "text of an event was" : "texts of events were"} compressed.`;
			if (config.database.engine !== "sqlite") return [sentence];
			const free = `${mebibytes(freeBytes)} MiB stay for new data`;
			return [sentence, `${mebibytes(returned)} MiB were returned to the file system, ${free}.`];
		}
	});
}

function mebibytes(bytes: bigint): number {
	return Math.round(Number(bytes) / 2 ** 20);
}

/** Counts what each rule of retention would remove now, and erases nothing. Returns the lines of a table. */
export async function countDue(config: Config): Promise<readonly string[]> {
	const now = BigInt(Date.now()) * 1000n;
	return await reachService(config, async ({ transport }) => {
		const client = createClient(ConversationEraseService, transport);
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
	return await reachService(config, async ({ transport }) => {
		const client = createClient(ConversationUsageService, transport);
		await client.startUsageRebuild({});
		const state = await untilEnded(
			() => client.getUsageRebuild({}),
			({ conversations, total }) => onProgress(Math.min(Number(conversations), Number(total)), Number(total)),
		);
		return reportOf(state);
	});
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
