import { create } from "@bufbuild/protobuf";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import { ConversationExecutionStatus, type ConversationInfo } from "../../gen/conversations/v1/conversation_pb.js";
import { UpdateMaker } from "../../src/conversations/ingest/update-maker.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { RecordVault } from "../../src/record/secrets/record-vault.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { serve } from "../processes/parent.ts";
import { identify, readRecord } from "../requests.ts";
import { type FillPlan, fillPlan, RARE } from "./fill-plan.ts";

/** Fills a database through the service's own handler and store, without a transport. */

/** Appends under way at a time. */
const CONCURRENCY = 1_000;
const LOG = { error: console.error, warn: console.warn, info: () => {} };

serve(fillPlan, async (plan) => {
	await using store = await openSqliteStore(plan.path, LOG);
	const format = new RecordFormat();
	const maker = new UpdateMaker(format, new RecordVault(format, []));
	const next = plan.kind === "history" ? await history(plan) : await variety(plan);
	const underWay: Promise<unknown>[] = [];
	for (let n = 0; n < plan.updates; n++) {
		// The record is encoded before the call returns, so that the next one can be made of it.
		underWay.push(store.append(maker.make(next(n))));
		if (underWay.length === CONCURRENCY) await Promise.all(underWay.splice(0));
	}
	await Promise.all(underWay);
	return {};
});

/** Updates as the load clients number them. */
async function history({ body, conversations }: Extract<FillPlan, { kind: "history" }>) {
	const record = await readRecord(body);
	return (n: number): ConversationInfo => {
		identify(record, n % conversations, Math.floor(n / conversations));
		return record;
	};
}

/** Conversations of which some, spread evenly, differ from all others in each property that lists filter by. */
async function variety({ updates, rare }: Extract<FillPlan, { kind: "variety" }>) {
	const [common, special] = [await readRecord("small"), await readRecord("native")];
	const titles = ["Fix the login form", "Update dependencies", "Add a test for dates", "Explain this error"];
	common.executionStatus = ConversationExecutionStatus.IDLE;
	special.executionStatus = ConversationExecutionStatus[RARE.status];
	special.title = `Look for the ${RARE.title} in the garden`;
	special.parentConversationId = RARE.parentId;
	special.tags = { [RARE.tagKey]: RARE.tagValue };
	const agent = special.agent?.kind;
	if (agent?.case !== "agent" || agent.value.llm === undefined) throw new Error("the body must have a native agent");
	agent.value.llm.model = RARE.model;
	return (n: number): ConversationInfo => {
		if (n % Math.floor(updates / rare) === 0) {
			identify(special, n, 0);
			special.createdAt = create(TimestampSchema, { seconds: RARE.created, nanos: n * 1000 });
			special.updatedAt = create(TimestampSchema, { seconds: RARE.updated, nanos: n * 1000 });
			return special;
		}
		identify(common, n, 0);
		common.title = `${titles[n % titles.length]} ${n}`;
		common.tags = { team: `team${n % 20}` };
		common.createdAt = create(TimestampSchema, { seconds: 1_790_000_000n + BigInt(n) });
		common.updatedAt = create(TimestampSchema, { seconds: 1_791_000_000n + BigInt(n) });
		return common;
	};
}
