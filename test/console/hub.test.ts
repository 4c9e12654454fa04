import { setTimeout as wait } from "node:timers/promises";
import { Code, ConnectError } from "@connectrpc/connect";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type Entry, Hub, type HubMessage, type Open, type Topic } from "../../console/src/service/hub.ts";

/** A log of events in memory, and the streams of it that are open. */
class MemoryLog {
	readonly #entries: { readonly sequence: bigint; readonly entry: Entry }[] = [];
	readonly #wakers = new Set<() => void>();
	/** Topics of the open streams. */
	readonly streams = new Set<Topic>();
	/** Sequence up to which entries are no longer stored. */
	pruned = 0n;

	append(conversationId: string, kind: string): void {
		const sequence = BigInt(this.#entries.length + 1);
		const bytes = () => new TextEncoder().encode(`${sequence} ${conversationId} ${kind}`);
		this.#entries.push({ sequence, entry: { conversationId, kind, bytes } });
		for (const wake of this.#wakers) wake();
	}

	/** Ends all open streams. */
	fail(): void {
		for (const fail of this.#failures) fail();
	}
	readonly #failures = new Set<() => void>();

	readonly open: Open = (topic, after, signal) => this.#read(topic, after, signal);

	async *#read(topic: Topic, after: bigint, signal: AbortSignal) {
		if (after < this.pruned) throw new ConnectError("pruned", Code.OutOfRange);
		const failed = new AbortController();
		const fail = (): void => failed.abort();
		this.#failures.add(fail);
		this.streams.add(topic);
		try {
			let position = after;
			while (!signal.aborted) {
				for (const { sequence, entry } of this.#entries.slice(Number(position))) {
					position = sequence;
					const isIn = ["", entry.conversationId].includes(topic.conversationId);
					if (isIn && !topic.kindsNot.includes(entry.kind)) yield { sequence, entry };
				}
				yield { sequence: position };
				await new Promise<void>((resolve) => {
					const wake = (): void => {
						this.#wakers.delete(wake);
						resolve();
					};
					this.#wakers.add(wake);
					signal.addEventListener("abort", wake);
					failed.signal.addEventListener("abort", wake);
					if (this.#entries.length > Number(position)) wake();
				});
				if (failed.signal.aborted) throw new ConnectError("away", Code.Unavailable);
			}
		} finally {
			this.#failures.delete(fail);
			this.streams.delete(topic);
		}
	}
}

const CONVERSATIONS = ["a", "b", "c", "d", "e", "f"];
const KINDS = ["message", "action", "delta"];

const topicOf = (conversationId: string, kindsNot: readonly string[]): Topic => ({
	log: "events",
	baseUrl: "",
	key: "key",
	conversationId,
	kindsNot,
});

/** A tab: it follows a topic again from where it was whenever that ends. */
class Tab {
	readonly entries: string[] = [];
	readonly #hub: Hub;
	readonly topic: Topic;
	readonly from: bigint;
	after: bigint;
	#stop: (() => void) | undefined;

	constructor(hub: Hub, topic: Topic, from: bigint) {
		this.#hub = hub;
		this.topic = topic;
		this.from = from;
		this.after = from;
		this.#follow();
	}

	#follow(): void {
		this.#stop = this.#hub.subscribe(this.topic, this.after, (message) => {
			if ("failed" in message) {
				this.#follow();
				return;
			}
			this.after = message.sequence;
			if (message.entry !== undefined) this.entries.push(new TextDecoder().decode(message.entry));
		});
	}

	close(): void {
		this.#stop?.();
	}
}

test("each tab receives each entry of its topic once and in order, however tabs come, go and fail; few streams are open", async () => {
	const step = fc.oneof(
		{ weight: 4, arbitrary: fc.record({ append: fc.constantFrom(...CONVERSATIONS), kind: fc.constantFrom(...KINDS) }) },
		{
			weight: 3,
			arbitrary: fc.record({
				opens: fc.constantFrom("", ...CONVERSATIONS),
				kindsNot: fc.subarray(KINDS),
				before: fc.nat({ max: 4 }),
			}),
		},
		{ weight: 1, arbitrary: fc.record({ closes: fc.nat() }) },
		{ weight: 1, arbitrary: fc.constant({ fails: true }) },
		{ weight: 2, arbitrary: fc.constant({ waits: true }) },
	);
	await fc.assert(
		fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
			const log = new MemoryLog();
			const hub = new Hub(log.open);
			const tabs: Tab[] = [];
			const all: { sequence: bigint; id: string; kind: string }[] = [];
			for (const one of steps) {
				if ("append" in one) {
					log.append(one.append, one.kind);
					all.push({ sequence: BigInt(all.length + 1), id: one.append, kind: one.kind });
				} else if ("opens" in one) {
					const from = BigInt(Math.max(0, all.length - one.before));
					tabs.push(new Tab(hub, topicOf(one.opens, one.kindsNot), from));
				} else if ("closes" in one) tabs.splice(one.closes % Math.max(tabs.length, 1), 1)[0]?.close();
				else if ("fails" in one) log.fail();
				else await wait(0);
			}
			for (const { topic, from, entries } of tabs) {
				const expected = all
					.filter(({ sequence, id, kind }) => {
						const isIn = ["", id].includes(topic.conversationId);
						return sequence > from && isIn && !topic.kindsNot.includes(kind);
					})
					.map(({ sequence, id, kind }) => `${sequence} ${id} ${kind}`);
				await expect.poll(() => entries).toEqual(expected);
			}
			await expect.poll(() => log.streams.size).toBeLessThanOrEqual(Math.min(4, tabs.length));
			for (const tab of tabs) tab.close();
			await expect.poll(() => log.streams.size).toBe(0);
		}),
		{ numRuns: 150 },
	);
});

test("a tab that asks for what is no longer stored is told so, and the others go on", async () => {
	const log = new MemoryLog();
	for (let index = 0; index < 10; index += 1) log.append("a", "message");
	log.pruned = 5n;
	const hub = new Hub(log.open);
	const received = (after: bigint): HubMessage[] => {
		const messages: HubMessage[] = [];
		hub.subscribe(topicOf("", []), after, (message) => messages.push(message));
		return messages;
	};
	const present = received(9n);
	const late = received(3n);
	await expect.poll(() => late).toEqual([{ failed: { code: Code.OutOfRange, text: "pruned" } }]);
	log.append("a", "message");
	await expect
		.poll(() => present.flatMap((message) => ("entry" in message && message.entry ? [message.sequence] : [])))
		.toEqual([10n, 11n]);
});
