import type { SecretsForm } from "../record/secrets/secret-walk.ts";
import { authorize, type Principal } from "./keys.ts";

/**
 * Makes sure that a principal may read records with their secrets in a form. Plain text needs the scope `secrets`, the
 * other forms need nothing beyond the scope `read`.
 *
 * @throws ServiceError `permission_denied`, naming the scope that the key lacks
 */
export function authorizeSecrets(principal: Principal, form: SecretsForm): void {
	if (form === "plaintext") authorize(principal, "secrets");
}
