import { create, toBinary } from "@bufbuild/protobuf";
import { ConversationFilterSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Store } from "../store/store.ts";

/** Name of the endpoint of traces. No caller can give an endpoint this name. */
export const TRACES_ENDPOINT = "$traces";
export const TRACES_FORM = "otlp";
const ID = "traces";

/** Changes with which a run may have ended. One that began and ended in one post has changed no status. */
const CHANGES = ["STARTED", "UPDATED", "PAUSED", "FINISHED", "FAILED", "STUCK", "DELETED"];

/**
 * Makes the endpoint whose position says how far traces were sent; it begins at the newest update. Without an address it is
 * removed.
 */
export async function followTraces(
	{ updates, tables }: Pick<Store, "updates" | "tables">,
	url: string | undefined,
	now: number,
): Promise<void> {
	if (url === undefined) {
		const known = await tables.read.listEndpoints({ owner: "" });
		if (known.some(({ id }) => id === ID)) await tables.write.deleteEndpoint(ID);
		return;
	}
	const isNew = await tables.write.createEndpoint({
		...{
			id: ID,
			name: TRACES_ENDPOINT,
			owner: "",
			url,
			changes: CHANGES,
			form: TRACES_FORM,
			include: [],
			state: "active",
		},
		...{ filter: toBinary(ConversationFilterSchema, create(ConversationFilterSchema)), secrets: new Uint8Array() },
		...{ reason: "", position: (await updates.range()).newest, generation: 1n, failures: 0, failingSince: undefined },
		...{ lastSuccessAt: undefined, lost: 0n, createdAt: BigInt(now) * 1000n, createdBy: "" },
	});
	if (!isNew) await tables.write.changeEndpoint({ id: ID, url, changes: CHANGES });
}
