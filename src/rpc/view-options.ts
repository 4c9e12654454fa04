import { ConversationView, SecretsMode } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Principal } from "../access/keys.ts";
import { authorizeSecrets } from "../access/secrets.ts";
import { invalid } from "../conversations/read/filter.ts";
import type { UpdateViewOptions } from "../conversations/read/update-view.ts";
import type { SecretsForm } from "../record/secrets/secret-walk.ts";

/**
 * The form in which secrets are shown to a caller.
 *
 * @throws ServiceError `invalid_argument` for a mode that is not known, or `permission_denied` for plain text without
 *   the scope `secrets`
 */
export function secretsFormOf(mode: SecretsMode, caller: Principal): SecretsForm {
	const form = formOf(mode);
	authorizeSecrets(caller, form);
	return form;
}

/**
 * How much of each record is shown to a caller, and how.
 *
 * @throws ServiceError as {@link secretsFormOf}, and `invalid_argument` for a view that is not known
 */
export function viewOptionsOf(
	request: { readonly view: ConversationView; readonly secrets: SecretsMode },
	caller: Principal,
): UpdateViewOptions {
	return {
		full: isFull(request.view),
		secrets: secretsFormOf(request.secrets, caller),
		// Whether a secret changed tells whether a guess at it was right.
		secretPaths: caller.scopes.has("secrets"),
	};
}

// Enums of proto3 are open: a newer client can send numbers that are not known here.
function formOf(mode: SecretsMode): SecretsForm {
	switch (mode) {
		case SecretsMode.UNSPECIFIED:
		case SecretsMode.REDACTED:
			return "redacted";
		case SecretsMode.ENCRYPTED:
			return "encrypted";
		case SecretsMode.PLAINTEXT:
			return "plaintext";
		default:
			throw invalid("secrets", "is not a known mode");
	}
}

function isFull(view: ConversationView): boolean {
	switch (view) {
		case ConversationView.UNSPECIFIED:
		case ConversationView.SUMMARY:
			return false;
		case ConversationView.FULL:
			return true;
		default:
			throw invalid("view", "is not a known view");
	}
}
