import { type AccessKeys, COMMAND, type ListedKey } from "./access/access-keys.ts";
import { microseconds } from "./access/stored-keys.ts";
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
			accessKeys
				.list(COMMAND)
				.filter((key) => [...key.scopes].includes("ingest"))
				.map((key) => ({ name: key.name, owner: key.owner || undefined, hasEnded: hasEnded(key) })),
		client: { maxBytes: maxBodyBytes },
	});
}

function hasEnded(key: ListedKey): boolean {
	if (key.configured) return false;
	const { revokedAt, expiresAt } = key;
	return revokedAt !== undefined || (expiresAt !== undefined && expiresAt <= microseconds(Date.now()));
}
