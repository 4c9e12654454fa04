import { badClients } from "./bad-clients.ts";
import { badInputs } from "./bad-inputs.ts";
import { failover } from "./failover.ts";
import { hostileBodies } from "./hostile-bodies.ts";
import { kills } from "./kills.ts";
import { overload } from "./overload.ts";
import type { Run } from "./run.ts";
import { sharedDatabase } from "./shared-database.ts";
import { silentWatchers } from "./silent-watchers.ts";
import { slowClients } from "./slow-clients.ts";

/** All runs, in the order of their execution. */
export const RUNS: readonly Run[] = [
	kills,
	sharedDatabase,
	failover,
	badInputs,
	badClients,
	hostileBodies,
	slowClients,
	silentWatchers,
	overload,
];
