import { actionOf, type ParsedEvent, type Step, stepOf, toolCallOf } from "./steps.ts";

/**
 * The steps of a conversation in the order of their sequences, but never one before the event that it follows in the
 * tree of the conversation. New events change only the steps that they belong to: a step that has not changed stays the
 * same object, whatever arrives.
 */
export class StepList {
	#steps: Step[] = [];
	readonly #bySequence = new Map<bigint, ParsedEvent>();
	readonly #byId = new Map<string, ParsedEvent>();
	/** The events of each step, in order, by the key of the step. */
	readonly #groups = new Map<string, ParsedEvent[]>();
	/** Index of each step by its key. */
	readonly #places = new Map<string, number>();
	/** The first event that follows another one in the tree, by the id of that one. */
	readonly #followers = new Map<string, ParsedEvent>();
	/** Ids of events that others name, and that have not arrived. */
	readonly #awaited = new Set<string>();
	/** The largest sequence. */
	#newest = 0n;

	/** The steps. Another array after each change. */
	get steps(): readonly Step[] {
		return this.#steps;
	}

	/** Number of events. */
	get size(): number {
		return this.#bySequence.size;
	}

	/** The largest sequence of an event; 0 if there is none. */
	get newest(): bigint {
		return this.#newest;
	}

	eventAt(sequence: bigint): ParsedEvent | undefined {
		return this.#bySequence.get(sequence);
	}

	/** Returns the step that has an event; undefined if the event is not there. */
	stepWith(eventId: string): Step | undefined {
		const event = this.#byId.get(eventId);
		return event && this.#stepOf(event);
	}

	/** Returns the first step with an event that follows another one, which need not be there. */
	stepAfter(eventId: string): Step | undefined {
		const event = this.#followers.get(eventId);
		return event && this.#stepOf(event);
	}

	/** Adds events. Those that are there already are left out. */
	add(events: readonly ParsedEvent[]): void {
		const added = events.filter(({ sequence }) => !this.#bySequence.has(sequence)).sort(bySequence);
		if (added.length === 0) return;
		this.#steps = [...this.#steps];
		const changed = new Set<string>();
		let isInOrder = true;
		for (const event of added) {
			isInOrder &&= event.sequence > this.#newest && !this.#awaited.has(event.id);
			this.#bySequence.set(event.sequence, event);
			this.#byId.set(event.id, event);
			if (isInOrder) changed.add(this.#append(event));
		}
		if (!isInOrder) {
			this.#arrange();
			return;
		}
		for (const key of changed) this.#place(key, stepOf(this.#groups.get(key) ?? []));
	}

	/** Adds an event behind all others, and returns the key of its step. */
	#append(event: ParsedEvent): string {
		this.#note(event);
		const key = this.#keyOf(event);
		const group = this.#groups.get(key);
		if (group === undefined) this.#groups.set(key, [event]);
		else group.push(event);
		return key;
	}

	#place(key: string, step: Step): void {
		const place = this.#places.get(key) ?? this.#steps.length;
		this.#places.set(key, place);
		this.#steps[place] = step;
	}

	/** Puts all events in their order. Only steps whose events have changed are made anew. */
	#arrange(): void {
		const old = new Map([...this.#places].map(([key, place]) => [key, this.#steps[place]]));
		this.#groups.clear();
		this.#steps = [];
		this.#places.clear();
		this.#followers.clear();
		this.#awaited.clear();
		const ordered = inTreeOrder([...this.#bySequence.values()].sort(bySequence), this.#byId);
		for (const event of ordered) this.#append(event);
		// A result can have a smaller sequence than its action.
		for (const [key, group] of this.#groups) group.sort((a, b) => Number(b.id === key) - Number(a.id === key));
		for (const event of ordered) {
			const key = this.#keyOf(event);
			const group = this.#groups.get(key) ?? [];
			if (group[0] !== event) continue;
			const step = old.get(key);
			this.#place(key, step !== undefined && isSame(step.events, group) ? step : stepOf(group));
		}
	}

	/** Notes what an event says of others. */
	#note(event: ParsedEvent): void {
		const { sequence, parentId } = event;
		if (sequence > this.#newest) this.#newest = sequence;
		for (const id of [parentId, actionOf(event)]) if (id !== undefined && !this.#byId.has(id)) this.#awaited.add(id);
		if (parentId !== undefined && !this.#followers.has(parentId)) this.#followers.set(parentId, event);
	}

	#stepOf(event: ParsedEvent): Step | undefined {
		const place = this.#places.get(this.#keyOf(event));
		return place === undefined ? undefined : this.#steps[place];
	}

	/** Returns the key of the step of an event: the id of its action, if that is there, its tool call, or its own id. */
	#keyOf(event: ParsedEvent): string {
		const call = toolCallOf(event);
		if (call !== undefined) return `tool call ${call}`;
		const action = this.#byId.get(actionOf(event) ?? "");
		const isResult = action !== undefined && actionOf(action) === undefined && toolCallOf(action) === undefined;
		return isResult ? action.id : event.id;
	}
}

function bySequence(a: ParsedEvent, b: ParsedEvent): number {
	return a.sequence < b.sequence ? -1 : 1;
}

function isSame(a: readonly ParsedEvent[], b: readonly ParsedEvent[]): boolean {
	return a.length === b.length && a.every((event, index) => event === b[index]);
}

/** Returns events in order, but never one before its parent. */
function inTreeOrder(events: readonly ParsedEvent[], byId: ReadonlyMap<string, ParsedEvent>): readonly ParsedEvent[] {
	const placed = new Set<ParsedEvent>();
	const ordered: ParsedEvent[] = [];
	for (const event of events) {
		const chain: ParsedEvent[] = [];
		let next: ParsedEvent | undefined = event;
		while (next !== undefined && !placed.has(next)) {
			placed.add(next);
			chain.push(next);
			next = next.parentId === undefined ? undefined : byId.get(next.parentId);
		}
		ordered.push(...chain.reverse());
	}
	return ordered;
}
