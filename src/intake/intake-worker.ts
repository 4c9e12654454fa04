import type { KeyObject } from "node:crypto";
import { EventFormat } from "../events/event-format.ts";
import { RecordFormat } from "../record/record-format.ts";
import { RecordVault } from "../record/secrets/record-vault.ts";
import { serve } from "../threads/serve.ts";
import { recordIntake } from "./record-intake.ts";

/** The `workerData` of the intake threads. */
export interface IntakeData {
	readonly encryptionKeys: readonly KeyObject[];
	/** Time zone of the events' times: `UTC` or a name of the IANA time zone database. */
	readonly eventTimeZone: string;
	/** Time zones of senders that have another one, by their names. */
	readonly senderTimeZones: ReadonlyMap<string, string>;
}

/** Worker thread that parses, checks, protects and compares records and events. */

serve(({ encryptionKeys, eventTimeZone, senderTimeZones }: IntakeData) => {
	const format = new RecordFormat();
	const vault = new RecordVault(format, encryptionKeys);
	const events = new EventFormat(format, encryptionKeys, eventTimeZone, senderTimeZones);
	return { methods: recordIntake(format, vault, events) };
});
