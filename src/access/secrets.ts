import type { SecretsForm } from "../record/secrets/secret-walk.ts";
import { authorize, type Principal } from "./keys.ts";

/**
 * Lets a principal read records with their secrets in a form: plain text needs the scope `secrets`, the other forms
 * need no more than reading does.
 *
 * @throws ServiceError `permission_denied`, naming the scope that the key lacks
 */
export function authorizeSecrets(principal: Principal, form: SecretsForm): void {
	if (form === "plaintext") authorize(principal, "secrets");
}
