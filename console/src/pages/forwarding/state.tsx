import { createClient } from "@connectrpc/connect";
import { ForwardingService } from "../../../../gen/conversations/v1/forwarding_service_pb.js";
import { useCopy } from "../../parts/copy.ts";
import { transport } from "../../service/service.ts";

export const client = createClient(ForwardingService, transport);

/** Shows a secret once. */
export function Secret({ text, onDone }: { readonly text: string; readonly onDone: () => void }) {
	const { said, copy } = useCopy();
	return (
		<div class="secret" role="status">
			<p>The secret with which deliveries are signed. It is shown only now.</p>
			<pre>{text}</pre>
			<p class="row">
				<button type="button" onClick={() => copy(text)}>
					Copy
				</button>
				<button type="button" onClick={onDone}>
					Done
				</button>
				<span class="small muted">{said}</span>
			</p>
		</div>
	);
}
