import { BASE_URL } from "../../service/service.ts";
import { query } from "../../shell/route.ts";
import type { Json } from "./steps.ts";

/** Copies what is shown: its id, a link, its JSON, or a command that reads it. */
export function CopyMenu({ id, record }: { readonly id: string; readonly record: Json | undefined }) {
	const host = new URL(BASE_URL).hostname;
	const kinds: Readonly<Record<string, () => string>> = {
		id: () => id,
		link: () => location.href,
		JSON: () => JSON.stringify(record, null, 2),
		curl: () => `curl -sS -H "X-Access-Token: $KEY" '${BASE_URL}/api/v1/conversations/${id}'`,
		grpcurl: () =>
			`grpcurl -plaintext -H "X-Access-Token: $KEY" -d '{"id":"${id}"}' ${host}:50051 conversations.v1.ConversationService/GetConversation`,
	};
	void query.value;
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
