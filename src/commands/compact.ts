import { ConversationSpaceService } from "../../gen/conversations/v1/conversation_space_service_pb.js";
import type { Config } from "../config/config.ts";
import { showProgress } from "../progress.ts";
import { spaceMethods } from "../rpc/command-methods.ts";
import { callAsCommand } from "./admin.ts";

/** The commands `compact` and `views reset`. They are clients of `ConversationSpaceService`. */

/** Compresses the texts of events and returns free pages, step by step. Returns sentences about it. */
export async function compactStore(config: Config): Promise<readonly string[]> {
	const show = showProgress((total) => `${total} events`, "examined");
	return await callAsCommand(
		config,
		ConversationSpaceService,
		async (client) => {
			let compressed = 0n;
			for (let after = 0n, hasMore = true; hasMore; ) {
				const step = await client.compactEvents({ after });
				compressed += step.compressed;
				({ through: after, hasMore } = step);
				if (step.newest > 0n) show(Number(after), Number(step.newest));
			}
			let returned = 0n;
			for (;;) {
				const { returnedBytes, freeBytes, hasMore } = await client.returnSpace({});
				returned += returnedBytes;
				if (hasMore) continue;
				return [
					`${compressed} ${compressed === 1n ? "text of an event was" : "texts of events were"} compressed.`,
					...(config.database.engine === "sqlite"
						? [
								`${mebibytes(returned)} MiB were returned to the file system, ${mebibytes(freeBytes)} MiB stay for new data.`,
							]
						: []),
				];
			}
		},
		async ({ store }) => spaceMethods(store),
	);
}

/** Derives the views anew. Returns a sentence about it. */
export async function resetViews(config: Config): Promise<string> {
	await callAsCommand(
		config,
		ConversationSpaceService,
		(client) => client.resetViews({}),
		async ({ store }) => spaceMethods(store),
	);
	return "The views were derived anew from what is stored.";
}

function mebibytes(bytes: bigint): number {
	return Math.round(Number(bytes) / 2 ** 20);
}
