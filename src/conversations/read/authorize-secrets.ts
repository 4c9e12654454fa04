import { authorize, type Principal } from "../../access/keys.ts";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";

/**
 * Checks that a principal may read records with their secrets in a form. Plain text needs the scope `secrets`. The
 * other forms need only the scope `read`, which the gate has checked.
 *
 * @throws ServiceError `permission_denied`, naming the scope that the principal lacks
 */
export function authorizeSecrets(principal: Principal, form: SecretsForm): void {
	if (form === "plaintext") authorize(principal, "secrets");
}
