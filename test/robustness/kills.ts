import { setImmediate } from "node:timers/promises";
import { TempFolder } from "../support/temp.ts";
import { Replica } from "./replica.ts";
import { ReplicaLoad } from "./replica-load.ts";
import type { Run } from "./run.ts";

/** Number of times that the program has the writers and watchers of one replica. */
const SHARES = 3;
/** Range of the posts that are acknowledged before a kill. */
const POSTS_RANGE = [1, 80] as const;
/** Maximum number of turns of the event loop between the last of these posts and the kill. */
const MAX_TURNS = 50;

/** Kills the program on SQLite repeatedly while clients post records and events over both transports. */
export const kills: Run = {
	name: "kills",
	about: "SIGKILL while records and events are posted over HTTP and gRPC; all that was acknowledged is compared",
	counted: "kills",
	long: 300,
	short: 5,
	async run(count, random, report) {
		await using stack = new AsyncDisposableStack();
		const folder = stack.use(new TempFolder("disk"));
		const env = { DATABASE_URL: `sqlite:${folder.file("conversations.db")}` };
		const replica = stack.use(await Replica.start(env, undefined, report));
		const shares = Array.from({ length: SHARES }, () => replica);
		const load = stack.use(new ReplicaLoad(shares, random.of("load"), report));
		for (let kill = 0; kill < count; kill++) {
			await load.more(random.integer(...POSTS_RANGE));
			for (let turn = random.integer(0, MAX_TURNS); turn > 0; turn--) await setImmediate();
			await replica.end("SIGKILL");
			await replica.again();
		}
		await load.expectKept();
	},
};
