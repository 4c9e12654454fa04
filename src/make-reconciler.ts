import { type AccessKeys, COMMAND } from "./access/access-keys.ts";
import type { OpenedStore } from "./admin.ts";
import type { Config } from "./config/config.ts";
import { EventIngest } from "./conversations/ingest/event-ingest.ts";
import { Ingest } from "./conversations/ingest/ingest.ts";
import { EventFormat } from "./events/event-format.ts";
import { SharedIntake } from "./intake/intake.ts";
import { recordIntake } from "./intake/record-intake.ts";
import { Reconciler, type ReconcilerOptions } from "./reconcile/reconciler.ts";
import { RecordFormat } from "./record/record-format.ts";
import { RecordVault } from "./record/secrets/record-vault.ts";
import { reconcileMethods } from "./rpc/reconcile-methods.ts";
import type { RpcMethod } from "./rpc/rpc-method.ts";

/** Makes the reconciler of a configuration: for the service, and for a command that opens the store itself. */
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

/** Returns the methods of `ConversationReconcileService` for a command that has opened the store. */
export async function reconcileMethodsOf(of: OpenedStore): Promise<readonly RpcMethod[]> {
	const { config, store, accessKeys, log, opened } = of;
	const { encryptionKeys, eventTimeZone, senderTimeZones } = config;
	const format = new RecordFormat();
	const vault = new RecordVault(format, encryptionKeys);
	const eventFormat = new EventFormat(format, encryptionKeys, eventTimeZone, senderTimeZones);
	const intake = opened.use(
		new SharedIntake({
			here: recordIntake(format, vault, eventFormat),
			underWay: () => 0,
			data: { encryptionKeys, eventTimeZone, senderTimeZones },
			log: { error: (fields) => log.intakeFailed("err" in fields ? fields.err : fields) },
		}),
	);
	// The service logs the gaps of posts; a command ends before they have lasted.
	const gapLog = { add: () => undefined };
	const eventIngest = new EventIngest(store, intake, log, gapLog);
	const ingest = new Ingest(store, intake, eventIngest, gapLog);
	const stopping = new AbortController();
	opened.defer(() => stopping.abort());
	const options = { store, ingest, eventIngest, log, stopping: stopping.signal };
	return reconcileMethods(reconcilerOf(config, accessKeys, options));
}
