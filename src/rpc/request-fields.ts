import type { Message } from "@bufbuild/protobuf";
import {
	ConversationView,
	SecretsMode,
	type WatchConversationUpdatesRequest,
	WatchPosition,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { entryOf, subjectOf } from "../access/audit.ts";
import { authorize, type Principal } from "../access/keys.ts";
import { uuid } from "../conversations/read/filter.ts";
import type { UpdateViewOptions } from "../conversations/read/updates.ts";
import type { WatchStart } from "../conversations/watch/watch.ts";
import { invalid } from "../errors.ts";
import type { SecretsForm } from "../record/secrets/secret-walk.ts";
import type { Store } from "../store/store.ts";

// Enums of proto3 are open: a newer client can send numbers that this release does not know.
const FORMS: ReadonlyMap<SecretsMode, SecretsForm> = new Map([
	[SecretsMode.UNSPECIFIED, "redacted"],
	[SecretsMode.REDACTED, "redacted"],
	[SecretsMode.ENCRYPTED, "encrypted"],
	[SecretsMode.PLAINTEXT, "plaintext"],
]);

/**
 * Returns the form in which secrets are shown to a caller.
 *
 * @throws ServiceError `invalid_argument` for an unknown mode, or `permission_denied` for plain text without the scope
 *   `secrets`
 */
export function secretsFormOf(mode: SecretsMode, caller: Principal): SecretsForm {
	const form = FORMS.get(mode);
	if (form === undefined) throw invalid("secrets", "is not a known mode");
	// The gate has checked the scope `read`, which the other forms need.
	if (form === "plaintext") authorize(caller, "secrets");
	return form;
}

/** Returns how much of each record is shown to a caller, and how. */
export function viewOptionsOf(
	request: { readonly view: ConversationView; readonly secrets: SecretsMode },
	caller: Principal,
): UpdateViewOptions {
	if (ConversationView[request.view] === undefined) throw invalid("view", "is not a known view");
	return {
		full: request.view === ConversationView.FULL,
		secrets: secretsFormOf(request.secrets, caller),
		// Whether a secret changed would confirm or refute a guess at its value.
		secretPaths: caller.scopes.has("secrets"),
	};
}

/** The fields that the requests of all watches have. */
type WatchFields = Pick<WatchConversationUpdatesRequest, "start" | "conversationId">;

/**
 * Returns where a watch starts, and the only conversation that it covers; undefined for all conversations.
 *
 * @throws ServiceError `invalid_argument` for a negative sequence number, an unknown position, or an id that is no UUID
 */
export function targetOf({ start, conversationId }: WatchFields) {
	return {
		start: startOf(start),
		conversationId: conversationId === "" ? undefined : uuid(conversationId, "conversation_id"),
	};
}

/** Returns the start of a watch: `now` when the request has none. */
function startOf(start: WatchFields["start"]): WatchStart {
	if (start.case === "afterSequence") {
		if (start.value < 0n) throw invalid("after_sequence", "must not be negative");
		return start.value;
	}
	switch (start.value) {
		case undefined:
		case WatchPosition.UNSPECIFIED:
		case WatchPosition.NOW:
			return "now";
		case WatchPosition.BEGINNING:
			return "beginning";
		default:
			throw invalid("position", "is not a known position");
	}
}

/**
 * Writes down that a caller reads secrets in plain text, if the request asks for them. To be called before they are read.
 *
 * @throws ServiceError when the store fails; then nothing must be shown
 */
export async function auditSecrets({ tables }: Pick<Store, "tables">, request: Message, caller: Principal) {
	const { secrets, view, id, conversationId }: Readonly<Record<string, unknown>> = { ...request };
	if (secrets !== SecretsMode.PLAINTEXT || !caller.scopes.has("secrets")) return;
	// A summary has no secrets.
	if (view !== undefined && view !== ConversationView.FULL) return;
	const subject = subjectOf(String(id ?? conversationId ?? ""));
	await tables.write.addAudit(entryOf("secrets.read", caller, subject, request.$typeName));
}
