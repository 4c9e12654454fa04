import { useCopy } from "../../parts/copy.ts";
import { BASE_URL } from "../../service/service.ts";
import { query } from "../../shell/route.ts";
import type { Json } from "./parts.ts";
import { type OpenConversation, readObject, readRecord } from "./state.ts";

/** Something that is shown, and how to read it again. */
interface Shown {
	readonly name: string;
	readonly id: string;
	readonly json: () => unknown;
	/** Path and parameters below the address of the service. */
	readonly path: string;
	readonly method: string;
	readonly request: object;
}

/** Copies what is shown: ids, a link, JSON, or a command that reads it. */
export function CopyMenu({ open }: { readonly open: OpenConversation }) {
	const all = shownOf(open);
	const { said, copy } = useCopy();
	return (
		<>
			<select
				aria-label="Copy"
				value=""
				onChange={(event) => {
					const [index, form] = event.currentTarget.value.split(" ");
					event.currentTarget.value = "";
					const shown = all[Number(index)];
					if (index === "link") copy(location.href);
					else if (shown !== undefined) copy(textOf(shown, form ?? ""));
				}}
			>
				<option value="">Copy…</option>
				<option value="link">link to what is shown</option>
				{all.map(({ name }, index) => (
					<optgroup key={name} label={name}>
						{["id", "JSON", "curl", "grpcurl"].map((form) => (
							<option key={form} value={`${index} ${form}`}>
								{form}
							</option>
						))}
					</optgroup>
				))}
			</select>
			<span role="status">{said}</span>
		</>
	);
}

/** Returns the conversation, and the version or the event that the address chooses. */
function shownOf(open: OpenConversation): readonly Shown[] {
	const { id } = open;
	const shown: Shown[] = [
		{
			name: "Conversation",
			id,
			json: async () => open.record.value ?? (await readRecord(id)),
			path: `api/v1/conversations/${id}`,
			method: "ConversationService/GetConversation",
			request: { id },
		},
	];
	const tab = query.value.get("tab") ?? "timeline";
	const sequence = query.value.get("sequence") ?? "";
	if (tab === "history" && /^\d+$/.test(sequence))
		shown.push({
			name: `Version ${sequence}`,
			id: sequence,
			json: () => readRecord(id, BigInt(sequence)),
			path: `api/v1/conversations/${id}?sequence=${sequence}`,
			method: "ConversationService/GetConversation",
			request: { id, sequence },
		});
	const chosen = open.eventAt(query.value.get("event"));
	if (tab === "timeline" && chosen !== undefined) {
		const path = `api/v1/conversations/${id}/events?after_sequence=${chosen.sequence - 1n}&page_size=1`;
		shown.push({
			name: `Event ${chosen.sequence}`,
			id: chosen.id,
			json: async () => eventIn((await readObject(path)) ?? {}),
			path,
			method: "ConversationEventService/ListConversationEvents",
			request: { conversation_id: id, after_sequence: String(chosen.sequence - 1n), page_size: 1 },
		});
	}
	return shown;
}

/** Returns the event of a page of one event, as it was sent. */
function eventIn(page: Json): unknown {
	const [entry]: unknown[] = Array.isArray(page.events) ? page.events : [];
	return typeof entry === "object" && entry !== null && "event" in entry ? entry.event : undefined;
}

async function textOf(shown: Shown, form: string): Promise<string> {
	if (form === "id") return shown.id;
	if (form === "JSON") return JSON.stringify(await shown.json(), null, 2);
	const header = '-H "X-Access-Token: $KEY"';
	if (form === "curl") return `curl -sS ${header} '${BASE_URL}/${shown.path}'`;
	// A page cannot know the address of the listener for gRPC, so the command names what to fill in.
	const plain = BASE_URL.startsWith("http:") ? " -plaintext" : "";
	const request = JSON.stringify(shown.request);
	return `grpcurl${plain} ${header} -d '${request}' "$GRPC_ADDRESS" conversations.v1.${shown.method}`;
}
