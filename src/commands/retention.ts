import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import type { Config } from "../config/config.ts";
import { dueBy } from "../conversations/retention.ts";
import { callAsCommand } from "./admin.ts";
import { tableOf } from "./output.ts";

/** The command `retention dry-run`. It asks `ConversationEraseService` what matches, and erases nothing. */

/** Counts what each rule of retention would remove now. Returns the lines of a table. */
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
