import { type CallSignal, isSenderGone, SENDER_GONE } from "../../call-signal.ts";
import { ServiceError } from "../../errors.ts";
import type { GroupRequest } from "../duplicates.ts";
import { type GroupPlan, planGroup } from "../group-plan.ts";
import { groupQuery } from "../group-query.ts";
import { completePlanAsync } from "../planning.ts";
import { readForPlan, readKnown } from "./known.ts";
import type { Session } from "./transaction.ts";
import { PROVISIONAL } from "./written-group.ts";

/** Until when a request may be written. */
export interface WriteLimits {
	/** Signal of the sender. */
	readonly signal: CallSignal | undefined;
	/** Time by performance.now() from which on the sender may have given up without a sign. */
	readonly until: number;
}

/** A request to append. */
export type SentRequest = GroupRequest & WriteLimits;

/** The error for a request that has waited for so long that its sender may have given up. */
const TOO_LATE = new ServiceError("unavailable", "the request could not be stored in time");

/**
 * Locks the conversations of a group, reads their state, and plans the group with provisional sequences. A request whose
 * sender no longer waits, or may have given up, changes nothing. The sender may have sent the same record to another
 * replica, and a newer one after it. From the time of the locks on, no other replica can store them before this group.
 */
export async function planLocked(session: Session, requests: readonly SentRequest[]): Promise<GroupPlan> {
	const known = await readKnown(session, groupQuery(requests));
	const planning = planGroup(requests, known, { updates: PROVISIONAL, events: PROVISIONAL }, refusalOf);
	return await completePlanAsync(planning, (reads) => readForPlan(session, reads));
}

function refusalOf({ signal, until }: WriteLimits): ServiceError | undefined {
	if (isSenderGone(signal)) return SENDER_GONE;
	return performance.now() > until ? TOO_LATE : undefined;
}
