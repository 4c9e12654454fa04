import { ConversationExecutionStatus as Status } from "../../../gen/conversations/v1/conversation_pb.js";

/** A status is shown by glyph, color and word, never by color alone. */
interface Look {
	readonly word: string;
	readonly glyph: string;
}

const LOOKS: Readonly<Record<Status, Look>> = {
	[Status.UNSPECIFIED]: { word: "unknown", glyph: "·" },
	[Status.IDLE]: { word: "idle", glyph: "○" },
	[Status.RUNNING]: { word: "running", glyph: "▶" },
	[Status.PAUSED]: { word: "paused", glyph: "‖" },
	[Status.WAITING_FOR_CONFIRMATION]: { word: "waiting", glyph: "◆" },
	[Status.FINISHED]: { word: "finished", glyph: "✓" },
	[Status.ERROR]: { word: "error", glyph: "✕" },
	[Status.STUCK]: { word: "stuck", glyph: "↻" },
	[Status.DELETING]: { word: "deleting", glyph: "⌫" },
};

export function lookOf(status: Status): Look {
	return LOOKS[status] ?? LOOKS[Status.UNSPECIFIED];
}

export function StatusMark({ status }: { readonly status: Status }) {
	const { word, glyph } = lookOf(status);
	return (
		<span class={`status ${word}`}>
			<span class="glyph" aria-hidden="true">
				{glyph}
			</span>
			{word}
		</span>
	);
}
