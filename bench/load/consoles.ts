import { create } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { NOT_FOLLOWED } from "../../console/src/pages/conversations/filter.ts";
import { Throttle } from "../../console/src/service/throttle.ts";
import { ConversationEventService } from "../../gen/conversations/v1/conversation_event_service_pb.js";
import { ConversationExecutionStatus as Status } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationReportService } from "../../gen/conversations/v1/conversation_report_service_pb.js";
import {
	ConversationFilterSchema,
	ConversationOrder,
	ConversationService,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { serve } from "../processes/parent.ts";
import { type ConsolesPlan, consolesPlan } from "./consoles-plan.ts";

/**
 * The calls of many open lists of the console: both watches, and while something arrives the counts and the list of
 * changed conversations, as often as console/src/pages/conversations/state.ts reads them.
 */

const progress = { received: 0, counts: 0, lists: 0, failure: undefined as string | undefined };

serve(consolesPlan, async (plan) => {
	if (plan.kind === "start") for (let index = 0; index < plan.consoles; index += 1) openConsole(plan);
	return progress;
});

function openConsole({ port, key }: Extract<ConsolesPlan, { kind: "start" }>): void {
	const transport = createConnectTransport({
		baseUrl: `http://127.0.0.1:${port}`,
		httpVersion: "1.1",
		interceptors: [
			(next) => (request) => {
				request.header.set("X-Access-Token", key);
				return next(request);
			},
		],
	});
	const conversations = createClient(ConversationService, transport);
	const reports = createClient(ConversationReportService, transport);
	const events = createClient(ConversationEventService, transport);
	const failed = (error: unknown): void => {
		progress.failure ??= String(error);
	};
	/** Runs the reads of a task, and keeps the first failure. */
	const reading = (task: () => Promise<void>) => new Throttle(() => task().catch(failed));
	const count = reading(async () => {
		await Promise.all([
			reports.countConversations({ groupBy: "status" }),
			reports.countConversations({
				filter: { executionStatuses: [Status.RUNNING, Status.WAITING_FOR_CONFIRMATION], activityTo: timestampNow() },
			}),
			reports.countConversations({ filter: { hasGaps: true } }),
		]);
		progress.counts += 1;
	});
	let from: ReturnType<typeof timestampNow> | undefined;
	const list = reading(async () => {
		const filter = create(ConversationFilterSchema, from === undefined ? {} : { activityFrom: from });
		from = undefined;
		await conversations.listConversations({ filter, orderBy: ConversationOrder.ACTIVITY, pageSize: 200 });
		progress.lists += 1;
		count.request();
	});
	const follow = async (): Promise<void> => {
		for await (const { content } of conversations.watchConversationUpdates({})) {
			if (content.case !== "update") continue;
			progress.received += 1;
			count.request();
		}
	};
	const followEvents = async (): Promise<void> => {
		for await (const { content } of events.watchConversationEvents({ filter: { kindsNot: [...NOT_FOLLOWED] } })) {
			if (content.case !== "event") continue;
			progress.received += 1;
			from ??= content.value.happenedAt;
			list.request();
		}
	};
	follow().catch(failed);
	followEvents().catch(failed);
}
