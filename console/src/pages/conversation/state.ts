import type { MessageInitShape } from "@bufbuild/protobuf";
import { computed, signal } from "@preact/signals";
import {
	type ConversationEventEntry,
	EventOrder,
} from "../../../../gen/conversations/v1/conversation_event_service_pb.js";
import type { ListConversationGapsResponse } from "../../../../gen/conversations/v1/conversation_gap_service_pb.js";
import type {
	ConversationFilterSchema,
	ConversationUpdate,
} from "../../../../gen/conversations/v1/conversation_service_pb.js";
import type { ConversationSummary } from "../../../../gen/conversations/v1/summary_pb.js";
import { UpdateChange } from "../../../../gen/conversations/v1/update_pb.js";
import {
	conversationGaps,
	conversations,
	events,
	KEY_REFUSED,
	type Problem,
	problemOf,
	readJson,
} from "../../service/service.ts";
import { signOut } from "../../service/session.ts";
import { Throttle } from "../../service/throttle.ts";
import { followEvents, followUpdates } from "../../service/watch.ts";
import { type Attribution, attributionOf, NO_ATTRIBUTION } from "./attribution.ts";
import { childrenOfSteps } from "./children.ts";
import { gapPlacesOf } from "./gap-places.ts";
import type { Json } from "./parts.ts";
import { ConversationScores } from "./scores.ts";
import { StepList } from "./step-list.ts";
import { type ParsedEvent, parseEntry, type Step } from "./steps.ts";

/** Number of the newest events, which are loaded first. */
const PAGE_SIZE = 200;
/** Number of older events that are added to the timeline at a time, because each addition of older ones puts all in order. */
const SHOWN_TOGETHER = 20_000;
/** Milliseconds between two reads of the children, forks and scores, of which no watch of a conversation tells. */
const RELATIVES_INTERVAL = 5_000;
/** Number of gaps that are shown. */
const MOST_GAPS = 1000;

/** Everything that the page of a conversation shows, kept up to date by two watches. */
export class OpenConversation {
	readonly id: string;
	readonly summary = signal<ConversationSummary | undefined>(undefined);
	/** The record in its JSON form, secrets redacted. */
	readonly record = signal<Json | undefined>(undefined);
	readonly updates = signal<readonly ConversationUpdate[]>([]);
	readonly children = signal<readonly ConversationSummary[]>([]);
	readonly forks = signal<readonly ConversationSummary[]>([]);
	/** What is missing; undefined until it is known. */
	readonly missing = signal<ListConversationGapsResponse | undefined>(undefined);
	readonly scores: ConversationScores;
	readonly problem = signal<Problem | undefined>(undefined);
	/** Whether what the page shows at first is still being loaded. */
	readonly loading = signal(true);
	/** Whether older events are still being loaded. */
	readonly loadingEvents = signal(true);
	#list = new StepList();
	readonly steps = signal<readonly Step[]>([]);
	readonly hasSteps = computed(() => this.steps.value.length > 0);
	/** Where in the timeline events are missing. */
	readonly gapPlaces = computed(() => {
		// The places follow from the steps, too.
		void this.steps.value;
		return gapPlacesOf(this.missing.value?.gaps ?? [], this.#list);
	});
	/** What the record tells of the cost of the steps. It looks at all of them, and so follows them at its own pace. */
	readonly attribution = signal<Attribution>(NO_ATTRIBUTION);
	/** Ids of the conversations that steps began, by the id of the step. */
	readonly childrenOfSteps = signal<ReadonlyMap<string, readonly string[]>>(new Map());
	readonly #attributing = new Throttle(async () => this.#attribute());
	readonly #stops: (() => void)[] = [];
	readonly #readingRecord = new Throttle(() => this.#loadRecord(this.#opened.signal));
	readonly #readingGaps = new Throttle(() => this.#loadGaps(this.#opened.signal));
	readonly #readingSummary = new Throttle(() => this.#loadSummary(this.#opened.signal));
	/** Ends what was begun to read and to follow when the page is read anew or closed. */
	#opened = new AbortController();

	constructor(id: string) {
		this.id = id;
		this.scores = new ConversationScores(id);
		void this.#open();
	}

	reload(): void {
		this.#opened.abort();
		for (const stop of this.#stops.splice(0)) stop();
		void this.#open();
	}

	close(): void {
		this.#opened.abort();
		this.#readingRecord.cancel();
		this.#readingGaps.cancel();
		this.#readingSummary.cancel();
		this.#attributing.cancel();
		this.scores.close();
		for (const stop of this.#stops.splice(0)) stop();
	}

	async #open(): Promise<void> {
		this.#opened = new AbortController();
		const { signal } = this.#opened;
		this.scores.request();
		try {
			// Before the watches, so that no later answer is replaced by this one.
			await this.#loadSummary(signal);
			await Promise.all([
				this.#openUpdates(signal),
				this.#openEvents(signal),
				this.#loadRelatives(signal),
				this.#loadGaps(signal),
			]);
			if (signal.aborted) return;
			const timer = setInterval(() => {
				if (document.hidden) return;
				void this.#loadRelatives(signal).catch(() => undefined);
				this.scores.request();
			}, RELATIVES_INTERVAL);
			signal.addEventListener("abort", () => clearInterval(timer));
			this.loading.value = false;
			this.problem.value = undefined;
			// The watches do not tell of what arrived between the summary and the pages that were listed.
			this.#readingSummary.request();
			this.#readingGaps.request();
		} catch (error) {
			const problem = problemOf(error);
			if (problem.kind === "key") signOut(KEY_REFUSED);
			if (!signal.aborted) this.problem.value = problem;
		}
	}

	async #openUpdates(opened: AbortSignal): Promise<void> {
		const loaded: ConversationUpdate[] = [];
		let pageToken = "";
		do {
			const page = await conversations.listConversationUpdates({ conversationId: this.id, pageSize: 1000, pageToken });
			loaded.push(...page.updates);
			pageToken = page.nextPageToken;
		} while (pageToken !== "" && !opened.aborted);
		if (opened.aborted) return;
		this.updates.value = loaded;
		await this.#loadRecord(opened);
		if (opened.aborted) return;
		const onEntries = (arrived: readonly ConversationUpdate[]): void => {
			if (arrived.some(({ change }) => change === UpdateChange.ERASED)) {
				this.#list = new StepList();
				this.steps.value = [];
				this.reload();
				return;
			}
			this.updates.value = [...this.updates.value, ...arrived];
			this.#readingSummary.request();
			this.#readingRecord.request();
			this.#readingGaps.request();
		};
		const onLost = (): void => this.reload();
		this.#stops.push(followUpdates(this.id, { from: loaded.at(-1)?.sequence ?? 0n, onEntries, onLost }));
	}

	/** Reads the present summary. That of an update does not follow the events that arrived after it. */
	async #loadSummary(opened: AbortSignal): Promise<void> {
		const { conversations: found } = await conversations.listConversations({ filter: { ids: [this.id] } });
		if (!opened.aborted) this.summary.value = found[0]?.summary;
	}

	async #loadRecord(opened: AbortSignal): Promise<void> {
		const record = await readRecord(this.id);
		if (opened.aborted) return;
		this.record.value = record;
		this.#attributing.request();
	}

	async #openEvents(opened: AbortSignal): Promise<void> {
		const filter = { kindsNot: ["StreamingDeltaEvent"] };
		const newest = { conversationId: this.id, filter, order: EventOrder.NEWEST_FIRST, pageSize: PAGE_SIZE };
		let page = await events.listConversationEvents(newest);
		if (opened.aborted) return;
		this.#add(page.events);
		const onEntries = (arrived: readonly ConversationEventEntry[]): void => {
			this.#add(arrived);
			this.#readingSummary.request();
			this.#readingGaps.request();
		};
		const onLost = (): void => this.reload();
		const from = page.events[0]?.sequence ?? 0n;
		this.#stops.push(followEvents(this.id, filter.kindsNot, { from, onEntries, onLost }));
		let older: ConversationEventEntry[] = [];
		while (page.nextPageToken !== "") {
			page = await events.listConversationEvents({ ...newest, pageSize: 1000, pageToken: page.nextPageToken });
			if (opened.aborted) return;
			older.push(...page.events);
			if (older.length < SHOWN_TOGETHER && page.nextPageToken !== "") continue;
			this.#add(older);
			older = [];
		}
		this.loadingEvents.value = false;
	}

	#add(entries: readonly ConversationEventEntry[]): void {
		this.#list.add(entries.filter(({ sequence }) => this.#list.eventAt(sequence) === undefined).map(parseEntry));
		if (this.#list.steps === this.steps.value) return;
		// The first steps are shown with their marks.
		if (this.hasSteps.value) this.#attributing.request();
		else this.#attribute();
		this.steps.value = this.#list.steps;
	}

	#attribute(): void {
		this.attribution.value = attributionOf(this.record.value, this.#list.steps);
		this.childrenOfSteps.value = childrenOfSteps(this.#list.steps, this.children.value);
	}

	/** Returns the event with a sequence as the address has it; undefined if it is not there. */
	eventAt(sequence: string | null): ParsedEvent | undefined {
		// What is there changes with the steps.
		if (sequence === null || !/^\d+$/.test(sequence)) return undefined;
		void this.steps.value;
		return this.#list.eventAt(BigInt(sequence));
	}

	/** Returns the step with an event of the address; undefined if it is not there. */
	stepAt(sequence: string | null): Step | undefined {
		const event = this.eventAt(sequence);
		return event && this.#list.stepWith(event.id);
	}

	/** Returns the step with an event; undefined if it is not there. */
	stepWith(eventId: string): Step | undefined {
		void this.steps.value;
		return this.#list.stepWith(eventId);
	}

	async #loadGaps(opened: AbortSignal): Promise<void> {
		try {
			const missing = await conversationGaps.listConversationGaps({ conversationId: this.id, pageSize: MOST_GAPS });
			if (!opened.aborted) this.missing.value = missing;
		} catch (error) {
			// The page says itself that there is no such conversation.
			if (problemOf(error).kind !== "missing") throw error;
		}
	}

	async #loadRelatives(opened: AbortSignal): Promise<void> {
		const find = async (filter: MessageInitShape<typeof ConversationFilterSchema>) => {
			const { conversations: found } = await conversations.listConversations({ filter, pageSize: 100 });
			return found.flatMap(({ summary }) => summary ?? []);
		};
		const [children, forks] = await Promise.all([
			find({ parentConversationId: this.id }),
			find({ forkedFromConversationId: this.id }),
		]);
		if (opened.aborted) return;
		this.children.value = children;
		this.#attributing.request();
		this.forks.value = forks;
	}
}

/** Reads a record in its JSON form; undefined when there is none, because only events have arrived. */
export async function readRecord(id: string, sequence?: bigint): Promise<Json | undefined> {
	const version = sequence === undefined ? "" : `?sequence=${sequence}`;
	try {
		return await readObject(`api/v1/conversations/${encodeURIComponent(id)}${version}`);
	} catch (error) {
		if (problemOf(error).kind === "missing") return undefined;
		throw error;
	}
}

/** Reads a JSON object from a route of the API; undefined when it is another value. */
export async function readObject(path: string): Promise<Json | undefined> {
	const value = await readJson(path);
	return isObject(value) ? value : undefined;
}

function isObject(value: unknown): value is Json {
	return typeof value === "object" && value !== null && !Array.isArray(value);
}
