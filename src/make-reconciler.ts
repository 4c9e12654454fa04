import { type AccessKeys, COMMAND } from "./access/access-keys.ts";
import type { Config } from "./config/config.ts";
import { Reconciler, type ReconcilerOptions } from "./reconcile/reconciler.ts";

/** Makes the reconciler of a configuration, for the service and for a command. */
export function reconcilerOf(
	{ eventTimeZone, senderTimeZones, maxBodyBytes }: Config,
	accessKeys: Pick<AccessKeys, "list">,
	options: Omit<ReconcilerOptions, "timeZoneOf" | "posters" | "client">,
): Reconciler {
	return new Reconciler({
		...options,
		timeZoneOf: (sender) => senderTimeZones.get(sender) ?? eventTimeZone,
		posters: () =>
			accessKeys.list(COMMAND).flatMap((key) => {
				const [isRevoked, owner] = key.configured
					? [false, key.owner]
					: [key.revokedAt !== undefined, key.owner || undefined];
				return !isRevoked && [...key.scopes].includes("ingest") ? [{ name: key.name, owner }] : [];
			}),
		client: { maxBytes: maxBodyBytes },
	});
}
