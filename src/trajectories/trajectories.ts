import { create } from "@bufbuild/protobuf";
import {
	type ConversationFilter,
	ConversationFilterSchema,
	ConversationOrder,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import type { ConversationSummary } from "../../gen/conversations/v1/summary_pb.js";
import type { Reads } from "../conversations/conversation-reads.ts";
import { uuid } from "../conversations/read/filter.ts";
import { ServiceError } from "../errors.ts";
import { readExactJson, stringifyExactJson } from "../record/json/exact-json.ts";
import { atifOf, type TrajectoryEvent, type TrajectorySource } from "./atif.ts";
import { messagesOf } from "./messages.ts";

/** Forms of a trajectory: the Agent Trajectory Interchange Format, and messages of a chat with tools. */
export const trajectoryForms = ["atif", "messages"] as const;
export type TrajectoryForm = (typeof trajectoryForms)[number];

/** What a caller may see. */
export type TrajectoryReads = Pick<Reads, "get" | "list" | "events">;

/** Maximum bytes of the events of a trajectory, with those of its sub-agents: they are in memory together. */
const MAX_BYTES = 64 * 1024 * 1024;
/** Number of entries of a page that is read. */
const PAGE = 1_000;

/**
 * Returns the trajectory of a conversation as JSON text, with secrets redacted.
 *
 * @throws ServiceError `invalid_argument` when the id is no UUID, `not_found` when there is no such conversation or no
 *   event of it makes a step, `too_large` when its events have more than 64 MiB
 */
export async function trajectoryJson(reads: TrajectoryReads, id: string, form: TrajectoryForm): Promise<string> {
	const ids = [uuid(id, "id")];
	const [summary] = await summariesOf(reads, create(ConversationFilterSchema, { ids }))
		.next()
		.then(({ value }) => value ?? []);
	if (summary === undefined) throw new ServiceError("not_found", "There is no such conversation");
	const source = await new SourceReader(reads).read(summary);
	const trajectory = atifOf(source);
	if (trajectory === undefined)
		throw new ServiceError("not_found", "No event of this conversation makes a step of a trajectory");
	return stringifyExactJson(form === "atif" ? trajectory : messagesOf(trajectory));
}

/** Returns the summaries of the conversations that a filter selects, page by page, the earliest created last. */
export async function* summariesOf(
	{ list }: Pick<TrajectoryReads, "list">,
	filter: ConversationFilter | undefined,
): AsyncGenerator<readonly ConversationSummary[]> {
	for (let pageToken = ""; ; ) {
		const page = await list.list({
			...{ filter, pageToken, pageSize: PAGE, orderBy: ConversationOrder.CREATED },
			...{ full: false, secrets: "redacted" },
		});
		yield page.conversations.map(({ summary }) => summary);
		pageToken = page.nextPageToken;
		if (pageToken === "") return;
	}
}

/** Reads conversations with those that they began. */
class SourceReader {
	readonly #reads: TrajectoryReads;
	readonly #seen = new Set<string>();
	#bytes = 0;

	constructor(reads: TrajectoryReads) {
		this.#reads = reads;
	}

	async read(summary: ConversationSummary): Promise<TrajectorySource> {
		const { id } = summary;
		this.#seen.add(id);
		const events = await this.#events(id);
		const children: TrajectorySource[] = [];
		const filter = create(ConversationFilterSchema, { parentConversationId: id });
		const found: ConversationSummary[] = [];
		for await (const page of summariesOf(this.#reads, filter)) found.push(...page);
		// A conversation can name any other as its parent, also one that it began.
		for (const child of found.reverse()) if (!this.#seen.has(child.id)) children.push(await this.read(child));
		return { summary, record: await this.#record(id), events, children };
	}

	async #record(id: string) {
		try {
			const { conversation } = await this.#reads.get.getJson({ id, sequence: undefined, secrets: "redacted" });
			return readExactJson(conversation);
		} catch (error) {
			// Each record that was posted was refused or lost.
			if (error instanceof ServiceError && error.kind === "not_found") return undefined;
			throw error;
		}
	}

	async #events(conversationId: string): Promise<TrajectoryEvent[]> {
		const events: TrajectoryEvent[] = [];
		for (let pageToken = ""; ; ) {
			const page = await this.#reads.events.listTexts({
				...{ conversationId, pageToken, pageSize: PAGE, afterSequence: 0n, secrets: "redacted" },
			});
			for (const event of page.entries) {
				this.#bytes += event.text?.length ?? 0;
				if (this.#bytes > MAX_BYTES)
					throw new ServiceError("too_large", "The events have more than 64 MiB: read them with the list of events");
				events.push(event);
			}
			pageToken = page.nextPageToken;
			if (pageToken === "") return events;
		}
	}
}
