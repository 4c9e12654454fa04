import { ConversationView, SecretsMode } from "../../gen/conversations/v1/conversation_service_pb.js";
import { authorize, type Principal } from "../access/keys.ts";
import { invalid } from "../conversations/read/filter.ts";
import type { UpdateViewOptions } from "../conversations/read/updates.ts";
import type { SecretsForm } from "../record/secrets/secret-walk.ts";

// Enums of proto3 are open: a newer client can send numbers that this release does not know.
const FORMS: ReadonlyMap<SecretsMode, SecretsForm> = new Map([
	[SecretsMode.UNSPECIFIED, "redacted"],
	[SecretsMode.REDACTED, "redacted"],
	[SecretsMode.ENCRYPTED, "encrypted"],
	[SecretsMode.PLAINTEXT, "plaintext"],
]);
const IS_FULL: ReadonlyMap<ConversationView, boolean> = new Map([
	[ConversationView.UNSPECIFIED, false],
	[ConversationView.SUMMARY, false],
	[ConversationView.FULL, true],
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

/**
 * Returns how much of each record is shown to a caller, and how.
 *
 * @throws ServiceError as {@link secretsFormOf}, and `invalid_argument` for an unknown view
 */
export function viewOptionsOf(
	request: { readonly view: ConversationView; readonly secrets: SecretsMode },
	caller: Principal,
): UpdateViewOptions {
	const full = IS_FULL.get(request.view);
	if (full === undefined) throw invalid("view", "is not a known view");
	return {
		full,
		secrets: secretsFormOf(request.secrets, caller),
		// Whether a secret changed would confirm or refute a guess at its value.
		secretPaths: caller.scopes.has("secrets"),
	};
}
