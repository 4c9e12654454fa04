import { BASE_URL } from "../../service/service.ts";
import type { Json } from "./steps.ts";

/** Copies what is shown: its id, a link, its JSON, or a command that reads it. */
export function CopyMenu({ id, record }: { readonly id: string; readonly record: Json | undefined }) {
	// A page cannot know the address of the listener for gRPC, so the command names what to fill in.
	const plain = BASE_URL.startsWith("http:") ? " -plaintext" : "";
	const kinds: Readonly<Record<string, () => string>> = {
		id: () => id,
		link: () => location.href,
		JSON: () => JSON.stringify(record, null, 2),
		curl: () => `curl -sS -H "X-Access-Token: $KEY" '${BASE_URL}/api/v1/conversations/${id}'`,
		grpcurl: () =>
			`grpcurl${plain} -H "X-Access-Token: $KEY" -d '{"id":"${id}"}' "$GRPC_ADDRESS" conversations.v1.ConversationService/GetConversation`,
	};
	return (
		<select
			aria-label="Copy"
			value=""
			onChange={(event) => {
				const text = kinds[event.currentTarget.value]?.();
				if (text !== undefined) void navigator.clipboard.writeText(text);
				event.currentTarget.value = "";
			}}
		>
			<option value="">Copy…</option>
			{Object.keys(kinds).map((kind) => (
				<option key={kind} value={kind}>
					{kind}
				</option>
			))}
		</select>
	);
}
