import { create, equals } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { computed, signal } from "@preact/signals";
import { type Score, ScoreSchema, ScoreSource } from "../../../../gen/conversations/v1/score_service_pb.js";
import { plainScore, THUMBS } from "../../parts/score.tsx";
import { KEY_REFUSED, type Problem, problemOf, scores } from "../../service/service.ts";
import { signOut } from "../../service/session.ts";
import { Throttle } from "../../service/throttle.ts";
import type { Step } from "./steps.ts";

/** Number of scores that are read at most. */
const MOST = 20_000;
const PAGE_SIZE = 1_000;

/** The scores of a conversation and of its events, and the thumbs that a person gives. */
export class ConversationScores {
	/** Those of the conversation first; undefined until they are known. */
	readonly all = signal<readonly Score[] | undefined>(undefined);
	/** By the id of the event; those of the conversation itself by an empty one. */
	readonly byEvent = computed(() => Map.groupBy(this.all.value ?? [], ({ eventId }) => eventId));
	/** Why the last read failed. */
	readonly problem = signal<Problem | undefined>(undefined);
	/** What the last key or click did, and why it did nothing. */
	readonly said = signal("");
	readonly refusal = signal("");
	/** Id of the event of which a note is written, empty for the conversation itself; undefined while none is. */
	readonly noted = signal<string | undefined>(undefined);
	readonly #conversationId: string;
	readonly #reading = new Throttle(() => this.#read());
	/** Number of reads that were begun. An answer that comes after a later read began is dropped. */
	#reads = 0;
	/** The changes that were asked for, one after the other. */
	#changing: Promise<unknown> = Promise.resolve();

	constructor(conversationId: string) {
		this.#conversationId = conversationId;
	}

	/** Reads the scores again soon: no watch tells of them. */
	request(): void {
		this.#reading.request();
	}

	close(): void {
		this.#reading.cancel();
		this.#reads += 1;
	}

	/** Returns the thumb that somebody gave. */
	thumbOf(giver: string, eventId: string): Score | undefined {
		return this.byEvent.value.get(eventId)?.find((score) => score.name === THUMBS && score.giver === giver);
	}

	/**
	 * Gives a thumb, up or down, or takes it back if it is there already.
	 *
	 * @param giver name of the caller
	 * @param eventId empty for the conversation itself
	 */
	toggle(giver: string, eventId: string, isUp: boolean): void {
		void this.#change(eventId, async () => {
			if (this.all.value === undefined) await this.#read();
			const present = this.thumbOf(giver, eventId);
			if (plainScore(present?.value) !== isUp) return await this.#give(eventId, isUp, present?.comment ?? "");
			await scores.deleteScore({ conversationId: this.#conversationId, name: THUMBS, eventId });
			return `${thumbWords(isUp)} taken back`;
		});
	}

	/** Begins to write a note on an event, or on the conversation itself if its id is empty. */
	openNote(eventId: string): void {
		this.refusal.value = "";
		this.noted.value = eventId;
	}

	/** Gives a thumb with a note. Returns whether it was given. */
	note(eventId: string, isUp: boolean, comment: string): Promise<boolean> {
		return this.#change(eventId, () => this.#give(eventId, isUp, comment));
	}

	async #give(eventId: string, isUp: boolean, comment: string): Promise<string> {
		const value = create(ValueSchema, { kind: { case: "boolValue", value: isUp } });
		const target = { conversationId: this.#conversationId, eventId };
		await scores.setScores({ scores: [{ ...target, name: THUMBS, value, comment, source: ScoreSource.PERSON }] });
		return `${thumbWords(isUp)} given${comment === "" ? "" : " with a note"}`;
	}

	/** Makes a change after those before it, and says what it did. */
	#change(eventId: string, act: () => Promise<string>): Promise<boolean> {
		const changed = this.#changing.then(async () => {
			try {
				this.said.value = `${await act()}${eventId === "" ? "" : " for the chosen message"}`;
				this.refusal.value = "";
			} catch (error) {
				this.said.value = "";
				this.refusal.value = this.#problemOf(error).text;
			}
			await this.#read().catch(() => this.request());
			return this.refusal.value === "";
		});
		this.#changing = changed;
		return changed;
	}

	async #read(): Promise<void> {
		this.#reads += 1;
		const read = this.#reads;
		const found: Score[] = [];
		let pageToken = "";
		try {
			do {
				const asked = { conversationId: this.#conversationId, pageSize: PAGE_SIZE, pageToken };
				const page = await scores.listScores(asked);
				found.push(...page.scores);
				pageToken = page.nextPageToken;
			} while (pageToken !== "" && found.length < MOST);
		} catch (error) {
			const problem = this.#problemOf(error);
			// The page says itself that there is no such conversation.
			if (problem.kind !== "missing") {
				if (read === this.#reads) this.problem.value = problem;
				throw error;
			}
		}
		if (read !== this.#reads) return;
		this.problem.value = undefined;
		const present = this.all.value;
		const isSame = present?.length === found.length && present.every((one, n) => isEqual(one, found[n]));
		if (!isSame) this.all.value = found;
	}

	#problemOf(error: unknown): Problem {
		const problem = problemOf(error);
		if (problem.kind === "key") signOut(KEY_REFUSED);
		return problem;
	}
}

function isEqual(a: Score, b: Score | undefined): boolean {
	return b !== undefined && equals(ScoreSchema, a, b);
}

function thumbWords(isUp: boolean): string {
	return isUp ? "Thumbs up" : "Thumbs down";
}

/** Returns the id of the agent's message that a step is, or its last words; undefined for another step. */
export function messageOf(step: Step | undefined): string | undefined {
	const [first] = step?.events ?? [];
	if (first === undefined || first.unreadable) return undefined;
	const isLast = first.kind === "ActionEvent" && first.members.tool_name === "finish";
	return step?.look === "agent" || isLast ? first.id : undefined;
}
