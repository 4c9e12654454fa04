import { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import { entryOf, subjectOf } from "../access/audit.ts";
import type { Notices } from "../forward/notices.ts";
import { type AgentServerAddress, AgentServerClient } from "../reconcile/agent-server.ts";
import { reasonOf } from "../reconcile/reconciler.ts";
import type { BudgetRow } from "../store/budgets.ts";
import type { Store } from "../store/store.ts";
import type { EventLog } from "../telemetry/log.ts";

/** Milliseconds in which an agent server must answer. */
const TIMEOUT = 10_000;
const MAX_ANSWER = 65_536;
const PAGE = 1_000;
/** Number of failures after which a conversation is not tried again until the process starts again. */
const MAX_FAILURES = 20;

interface PausesOptions {
	readonly store: Pick<Store, "getOwnership" | "listConversations" | "tables">;
	readonly notices: Pick<Notices, "tell" | "wasTold">;
	readonly log: EventLog;
	/** The agent servers by the senders that post from there. */
	readonly servers: ReadonlyMap<string, AgentServerAddress>;
	readonly stopping: AbortSignal;
}

export type Pauses = ReturnType<typeof pausesOf>;

/** Pauses running conversations of budgets that are spent, each once in a period of a budget. */
export function pausesOf({ store, notices, log, servers, stopping }: PausesOptions) {
	const failuresOf = new Map<string, number>();
	return { pause };

	/**
	 * Pauses those of some conversations that run.
	 *
	 * @param about words that identify the budget, its amount and its period
	 * @returns whether a failure may pass, so that it should be called again
	 */
	async function pause(budget: BudgetRow, about: readonly string[], ids: readonly string[]): Promise<boolean> {
		let mayPass = false;
		for (let n = 0; n < ids.length; n += PAGE) {
			const running = await store.listConversations({
				conditions: [
					{ kind: "equal", field: "executionStatus", value: ConversationExecutionStatus.RUNNING },
					{ kind: "ids", ids: ids.slice(n, n + PAGE) },
				],
				limit: PAGE,
				withRecords: false,
			});
			for (const { conversationId } of running) if (await pauseOne(budget, about, conversationId)) mayPass = true;
		}
		return mayPass;
	}

	async function pauseOne(budget: BudgetRow, about: readonly string[], conversationId: string): Promise<boolean> {
		const paused = { change: "BUDGET" as const, about: [...about, "paused", conversationId] };
		const failures = failuresOf.get(paused.about.join()) ?? 0;
		// Who lets it run again after it was paused is not stopped a second time.
		if (failures >= MAX_FAILURES || (await notices.wasTold(paused))) return false;
		const { reason, mayPass } = await callServer(budget, conversationId);
		const { name, owner } = budget;
		const told = {
			...{ conversationId, owner: owner === "" ? undefined : owner },
			data: { budget: { name, owner }, paused: reason === "", reason: reason === "" ? null : reason },
		};
		if (reason === "") {
			log.emit("conversation_paused", { conversationId, budget: name, owner });
			await notices.tell({ ...told, ...paused, text: `was paused, because the budget ${name} is spent` });
			return false;
		}
		failuresOf.set(paused.about.join(), mayPass ? failures + 1 : MAX_FAILURES);
		log.emit("conversation_not_paused", { conversationId, budget: name, owner, reason });
		await notices.tell({
			...{ ...told, change: "BUDGET", about: [...about, "not paused", conversationId] },
			text: `could not be paused, although the budget ${name} is spent: ${reason}`,
		});
		return mayPass;
	}

	/** Pauses a conversation at the agent server from which it was posted. The reason is empty if it was paused. */
	async function callServer({ name, owner }: BudgetRow, conversationId: string): Promise<Outcome> {
		const ownership = await store.getOwnership(conversationId);
		const address = servers.get(ownership?.sender ?? "");
		if (address === undefined)
			return { reason: "RECONCILE_AGENT_SERVERS has no agent server of its sender", mayPass: false };
		const client = new AgentServerClient(address, { maxBytes: MAX_ANSWER, timeout: TIMEOUT, signal: stopping });
		let outcome: Outcome = { reason: "", mayPass: false };
		try {
			if (!(await client.pause(conversationId, stopping)))
				outcome = { reason: "the agent server does not know it", mayPass: false };
		} catch (error) {
			stopping.throwIfAborted();
			outcome = { reason: reasonOf(error), mayPass: true };
		}
		const details = `budget ${name}: ${outcome.reason === "" ? "paused" : outcome.reason}`;
		const caller = { name: "service", owner: owner === "" ? undefined : owner };
		const entry = entryOf("conversation.paused", caller, subjectOf(conversationId), details);
		await store.tables.write.addAudit(entry);
		return outcome;
	}
}

interface Outcome {
	readonly reason: string;
	/** Whether another call can succeed. */
	readonly mayPass: boolean;
}
