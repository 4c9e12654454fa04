import { setTimeout } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { ConversationEraseService } from "../../gen/conversations/v1/conversation_erase_service_pb.js";
import { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationFilterSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Config } from "../config/config.ts";
import { statusNamed } from "../conversations/read/filter.ts";
import { reachService } from "./call.ts";

/** The command `erase`. It is a client of `ConversationEraseService`. */

/** Number of ids that are erased at a time. A SQLite database is cleaned once for those that wait together. */
const TOGETHER = 20;
/**
 * Number of conversations that a request erases by a policy, after which a SQLite database is cleaned, and the pause in
 * milliseconds after it, so that posts go on.
 */
const STEP = 100;
const PAUSE = 200;

/** Which conversations a policy erases. */
interface ErasePolicy {
	/** Those without activity since then. */
	readonly inactiveSince: Date;
	/** JSON name of the status that they must have; undefined for any. */
	readonly status: string | undefined;
	/** Owner that they must have; undefined for any. */
	readonly owner: string | undefined;
}

/**
 * Erases conversations by their ids. Returns a sentence about it.
 *
 * @throws Error that names the ids of which there is no conversation, after the others were erased
 */
export async function eraseByIds(config: Config, ids: readonly string[], withChildren: boolean): Promise<string> {
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
	if (unknown.length > 0) throw new Error(`there is no conversation ${unknown.join(", ")}; ${sentence(erased)}`);
	return sentence(erased);
}

/**
 * Erases conversations by a policy, or says which ones it would erase.
 *
 * @param onProgress called with the number of erased conversations, and with those that are to be erased
 * @throws RangeError when the status is not known
 */
export async function eraseByPolicy(
	config: Config,
	{ inactiveSince, status, owner = "" }: ErasePolicy,
	isDryRun: boolean,
	onProgress: (erased: number, total: number) => void,
): Promise<string> {
	const filter = create(ConversationFilterSchema, {
		activityTo: timestampFromMs(inactiveSince.getTime()),
		executionStatus: statusOf(status),
		owner,
	});
	return await reachService(config, async ({ transport }) => {
		const client = createClient(ConversationEraseService, transport);
		if (isDryRun) {
			const { ids, matching } = await client.deleteConversations({ filter, dryRun: true, max: 1000 });
			const shown = Number(matching) > ids.length ? [...ids, "…"] : ids;
			return [...shown, `${numberOf(matching)} would be erased. Add --execute to erase them.`].join("\n");
		}
		let erased = 0n;
		for (;;) {
			const step = await client.deleteConversations({ filter, max: STEP });
			erased += step.erased;
			const left = step.matching - step.erased;
			onProgress(Number(erased), Number(erased + left));
			if (left === 0n || step.erased === 0n) return sentence(erased);
			await setTimeout(PAUSE);
		}
	});
}

function sentence(erased: bigint): string {
	return `${numberOf(erased)} ${erased === 1n ? "was" : "were"} erased.`;
}

function numberOf(count: bigint): string {
	return `${count} ${count === 1n ? "conversation" : "conversations"}`;
}

function statusOf(name: string | undefined): ConversationExecutionStatus {
	if (name === undefined) return ConversationExecutionStatus.UNSPECIFIED;
	const found = statusNamed(name);
	if (found === undefined) throw new RangeError(`${name} is not a known status`);
	return found;
}
