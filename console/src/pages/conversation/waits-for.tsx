import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { EventOrder } from "../../../../gen/conversations/v1/conversation_event_service_pb.js";
import { events } from "../../service/service.ts";
import { StepList } from "./step-list.ts";
import { lineOfStep, parseEntry, type Step } from "./steps.ts";

/** Number of the newest events in which the calls are looked for. */
const NEWEST = 20;

interface WaitsForProps {
	readonly id: string;
	/** Number of events of the conversation. When it changes, the events are read again. */
	readonly eventCount: bigint;
}

/** The calls that a conversation waits for a person to confirm, in the row of a list. Shows nothing if none is found. */
export default function WaitsFor({ id, eventCount }: WaitsForProps) {
	const waiting = useSignal<readonly Step[]>([]);
	useEffect(() => {
		const ended = new AbortController();
		const newest = { conversationId: id, order: EventOrder.NEWEST_FIRST, pageSize: NEWEST };
		events.listConversationEvents(newest, { signal: ended.signal }).then(
			(page) => {
				const list = new StepList();
				list.add(page.events.map(parseEntry));
				waiting.value = list.steps.filter(({ isOpen }) => isOpen);
			},
			// The row tells its status without it.
			() => undefined,
		);
		return () => ended.abort();
	}, [id, eventCount]);
	const risks = [...new Set(waiting.value.map(({ risk }) => risk))].filter(Boolean);
	if (waiting.value.length === 0) return null;
	return (
		<span class="waiting waits-for">
			waits for: {waiting.value.map(lineOfStep).join(" · ")}
			{risks.length > 0 && ` (risk ${risks.join(", ")})`}
		</span>
	);
}
