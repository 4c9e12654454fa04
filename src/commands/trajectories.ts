import { existsSync } from "node:fs";
import { get } from "node:http";
import { text } from "node:stream/consumers";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import {
	type ConversationFilter,
	ConversationOrder,
	ConversationService,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Config } from "../config/config.ts";
import { ConversationReads } from "../conversations/conversation-reads.ts";
import { RefusedPosts } from "../conversations/refused/refused-posts.ts";
import { ClockSkews } from "../conversations/senders.ts";
import { ServiceError } from "../errors.ts";
import { EventFormat } from "../events/event-format.ts";
import { RecordFormat } from "../record/record-format.ts";
import { RecordVault } from "../record/secrets/record-vault.ts";
import { writeExport } from "../store/export/file.ts";
import { openStore } from "../store/open.ts";
import {
	summariesOf,
	TRAJECTORY_PATH,
	type TrajectoryForm,
	trajectoryForms,
	trajectoryJson,
} from "../trajectories/trajectories.ts";
import { commandSocketOf, isListening } from "../transports/http/command-socket.ts";
import { filterOption } from "./admin.ts";
import { UsageError, type Values } from "./options.ts";
import { print, showError } from "./output.ts";

/** Where the command `export --format trajectories` reads. */
interface Source extends AsyncDisposable {
	/** Returns the ids of the conversations that a filter selects, page by page. */
	pages(filter: ConversationFilter): AsyncIterable<readonly string[]>;
	/** @throws ServiceError as {@link trajectoryJson} does */
	trajectory(id: string, form: TrajectoryForm): Promise<string>;
}

/** The command `export --format trajectories`: writes a line for each conversation that has a step. */
export async function exportTrajectories(config: Config, file: string, options: Values): Promise<void> {
	const { form: name = trajectoryForms[0], filter: search = "" } = options;
	const form = trajectoryForms.find((one) => one === name);
	if (form === undefined) throw new UsageError(`--form must be one of ${trajectoryForms.join(", ")}`);
	if (options.all === true || options["after-update"] !== undefined || options["after-event"] !== undefined)
		throw new UsageError("--all, --after-update and --after-event are not for --format trajectories");
	const filter = filterOption(search);
	await using source = await openSource(config);
	const counts = { written: 0, empty: 0, failed: 0 };
	const lines = async function* (): AsyncGenerator<string> {
		for await (const ids of source.pages(filter))
			for (const id of ids) {
				try {
					yield `${await source.trajectory(id, form)}\n`;
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
	const { written, empty, failed } = counts;
	const result = `${file} has the trajectories of ${written} conversations; ${empty} have no step, ${failed} cannot be read.`;
	if (file === "-") process.stderr.write(`${result}\n`);
	else print(result);
}

/** Opens the way to the conversations: a service that has a SQLite database open, or else the database itself. */
async function openSource(config: Config): Promise<Source> {
	const { database } = config;
	if (database.engine === "sqlite") {
		if (!existsSync(database.path)) throw new Error(`there is no database ${database.path}`);
		const socketPath = commandSocketOf(database.path);
		if (await isListening(socketPath)) return sourceOfService(socketPath);
	}
	await using opened = new AsyncDisposableStack();
	const store = opened.use(await openStore(database, { error: (fields) => showError(fields, "The store failed") }, {}));
	const format = new RecordFormat();
	const { encryptionKeys, eventTimeZone, senderTimeZones, refusedBytes } = config;
	const onError = (error: unknown) => showError({ err: error }, "The store failed");
	const stopping = new AbortController();
	opened.defer(() => stopping.abort());
	const reads = new ConversationReads({
		...{ store, format, vault: new RecordVault(format, encryptionKeys) },
		events: new EventFormat(format, encryptionKeys, eventTimeZone, senderTimeZones),
		watches: { stopping: stopping.signal },
		clocks: new ClockSkews(() => undefined),
		refused: opened.use(new RefusedPosts(store, { keys: encryptionKeys, maxBytes: refusedBytes, onError })),
		onUnreadable: ({ error }) => onError(error),
		onUnreadableEvent: ({ error }) => onError(error),
		onErased: () => undefined,
	}).of({ owner: undefined });
	const running = opened.move();
	return {
		pages: async function* (filter) {
			for await (const page of summariesOf(reads, filter)) yield page.map(({ id }) => id);
		},
		trajectory: (id, form) => trajectoryJson(reads, id, form),
		[Symbol.asyncDispose]: () => running.disposeAsync(),
	};
}

function sourceOfService(socketPath: string): Source {
	const nodeOptions = { socketPath };
	const transport = createConnectTransport({ baseUrl: "http://localhost", httpVersion: "1.1", nodeOptions });
	const client = createClient(ConversationService, transport);
	return {
		pages: async function* (filter) {
			for (let pageToken = ""; ; ) {
				const page = await client.listConversations({
					...{ filter, pageToken, pageSize: 1_000, orderBy: ConversationOrder.CREATED },
				});
				yield page.conversations.flatMap(({ summary }) => summary?.id ?? []);
				pageToken = page.nextPageToken;
				if (pageToken === "") return;
			}
		},
		trajectory: async (id, form) => {
			const { promise, resolve, reject } = Promise.withResolvers<[number, string]>();
			get({ socketPath, path: `${TRAJECTORY_PATH.replace("{id}", id)}?form=${form}` }, (response) => {
				text(response).then((body) => resolve([response.statusCode ?? 0, body]), reject);
			}).on("error", reject);
			const [status, body] = await promise;
			if (status === 200) return body;
			throw new ServiceError(status === 404 ? "not_found" : "internal", `HTTP ${status}: ${body}`);
		},
		[Symbol.asyncDispose]: async () => undefined,
	};
}
