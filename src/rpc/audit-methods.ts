import type { Message } from "@bufbuild/protobuf";
import { AuditService } from "../../gen/conversations/v1/audit_service_pb.js";
import { ConversationView, SecretsMode } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Audit } from "../access/audit.ts";
import type { Principal } from "../access/keys.ts";
import { pageSize, readPageToken, writePageToken } from "../conversations/read/page.ts";
import { fromMicroseconds } from "../record/json/scalars.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** Name of the list in page tokens. */
const LIST = "audit";

/** The method of `AuditService`. */
export function auditMethods(audit: Pick<Audit, "list">): readonly RpcMethod[] {
	return [
		unary(AuditService.method.listAudit, async ({ pageSize: size, pageToken }, { owner }) => {
			const limit = pageSize(size);
			const before = pageToken === "" ? undefined : readPageToken(LIST, {}, pageToken);
			const found = await audit.list({ owner, before, limit: limit + 1 });
			const page = found.slice(0, limit);
			const last = found.length > limit ? page.at(-1) : undefined;
			return {
				entries: page.map(({ at, ...entry }) => ({ ...entry, at: fromMicroseconds(at) })),
				nextPageToken: last === undefined ? "" : writePageToken(LIST, {}, last.number),
			};
		}),
	];
}

/**
 * Writes down that a caller reads secrets in plain text, if the request asks for them. To be called before they are read.
 *
 * @throws ServiceError when the store fails; then nothing must be shown
 */
export async function auditSecrets(audit: Pick<Audit, "addOfConversation">, request: Message, caller: Principal) {
	const { secrets, view, id, conversationId }: Readonly<Record<string, unknown>> = { ...request };
	if (secrets !== SecretsMode.PLAINTEXT || !caller.scopes.has("secrets")) return;
	// A summary has no secrets.
	if (view !== undefined && view !== ConversationView.FULL) return;
	await audit.addOfConversation("secrets.read", caller, String(id ?? conversationId ?? ""), request.$typeName);
}
