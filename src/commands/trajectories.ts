import { get } from "node:http";
import { text } from "node:stream/consumers";
import { createClient } from "@connectrpc/connect";
import {
	type ConversationFilter,
	ConversationOrder,
	ConversationService,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { COMMAND } from "../access/access-keys.ts";
import type { Config } from "../config/config.ts";
import { ServiceError } from "../errors.ts";
import { writeExport } from "../store/export/file.ts";
import { TRAJECTORY_PATH, type TrajectoryForm, trajectoryForms, trajectoryJson } from "../trajectories/trajectories.ts";
import { filterOption, type Reached, reachService } from "./call.ts";
import { UsageError, type Values } from "./options.ts";
import { print, showError } from "./output.ts";

/** The command `export --format trajectories`: writes a line for each conversation that has a step. */
export async function exportTrajectories(config: Config, file: string, options: Values): Promise<void> {
	const { form: name = trajectoryForms[0], filter: search = "" } = options;
	const form = trajectoryForms.find((one) => one === name);
	if (form === undefined) throw new UsageError(`--form must be one of ${trajectoryForms.join(", ")}`);
	if (options.all === true || options["after-update"] !== undefined || options["after-event"] !== undefined)
		throw new UsageError("--all, --after-update and --after-event are not for --format trajectories");
	const filter = filterOption(search);
	const counts = { written: 0, empty: 0, failed: 0 };
	await reachService(config, async (reached) => {
		const lines = async function* (): AsyncGenerator<string> {
			for await (const id of idsOf(reached, filter)) {
				try {
					yield `${await trajectoryOf(reached, id, form)}\n`;
					counts.written += 1;
				} catch (error) {
					if (!(error instanceof ServiceError)) throw error;
					if (error.kind === "not_found") counts.empty += 1;
					else {
						counts.failed += 1;
						showError({ err: error }, `No trajectory of ${id}`);
					}
				}
			}
		};
		await writeExport(lines(), file);
	});
	const { written, empty, failed } = counts;
	const result = `${file} has the trajectories of ${written} conversations; ${empty} have no step, ${failed} cannot be read.`;
	if (file === "-") process.stderr.write(`${result}\n`);
	else print(result);
}

/** Returns the ids of the conversations that a filter selects, the earliest created last. */
async function* idsOf({ transport }: Reached, filter: ConversationFilter): AsyncGenerator<string> {
	const client = createClient(ConversationService, transport);
	for (let pageToken = ""; ; ) {
		const page = await client.listConversations({
			...{ filter, pageToken, pageSize: 1_000, orderBy: ConversationOrder.CREATED },
		});
		for (const { summary } of page.conversations) if (summary !== undefined) yield summary.id;
		pageToken = page.nextPageToken;
		if (pageToken === "") return;
	}
}

/** @throws ServiceError as {@link trajectoryJson} does */
async function trajectoryOf({ by }: Reached, id: string, form: TrajectoryForm): Promise<string> {
	if ("parts" in by) return await trajectoryJson(by.parts.reads.of(COMMAND), id, form);
	const { promise, resolve, reject } = Promise.withResolvers<[number, string]>();
	get({ ...by, path: `${TRAJECTORY_PATH.replace("{id}", id)}?form=${form}` }, (response) => {
		text(response).then((body) => resolve([response.statusCode ?? 0, body]), reject);
	}).on("error", reject);
	const [status, body] = await promise;
	if (status === 200) return body;
	throw new ServiceError(status === 404 ? "not_found" : "internal", `HTTP ${status}: ${body}`);
}
