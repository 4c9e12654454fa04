import { randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { ConversationStatsSchema } from "../../gen/conversations/v1/stats_pb.js";
import { fromMicroseconds } from "../../src/record/json/scalars.ts";
import type { Activity } from "../../src/store/activity.ts";
import type { GroupRequest } from "../../src/store/duplicates.ts";
import { type Gaps, gapKey } from "../../src/store/gaps.ts";
import { groupQuery, type KnownConversation, type WrittenEvent } from "../../src/store/group.ts";
import { type AppendOutcome, planGroup } from "../../src/store/group-plan.ts";
import type { HeadState, WrittenUpdate } from "../../src/store/head.ts";
import { batch, effect, effectOf, event, record, stateUpdate } from "./event-samples.ts";
import { sample, second, start } from "./samples.ts";

/** An engine in memory, which keeps the rows that plans write. */
class MemoryEngine {
	readonly states = new Map<string, HeadState>();
	readonly activities = new Map<string, Activity>();
	readonly gaps = new Map<string, Gaps>();
	readonly updates: WrittenUpdate[] = [];
	readonly events: WrittenEvent[] = [];

	async append(group: readonly GroupRequest[]): Promise<readonly AppendOutcome[]> {
		const { conversationIds, events, named } = groupQuery(group);
		const known = new Map(conversationIds.map((id) => [id, this.#known(id)]));
		for (const { conversationId, eventId } of [...events, ...named])
			if (this.events.some((one) => one.conversationId === conversationId && one.event.eventId === eventId))
				known.get(conversationId)?.eventIds.add(eventId);
		const newest = { updates: BigInt(this.updates.length), events: BigInt(this.events.length) };
		const { written, outcomes } = await planGroup(group, known, newest, () => undefined, {
			record: async (sequence) => this.#update(sequence).record,
			explained: async () => new Set(),
		});
		this.updates.push(...written.updates);
		this.events.push(...written.events);
		for (const [id, { state }] of written.heads) this.states.set(id, state);
		for (const [id, activity] of written.activities) this.activities.set(id, activity);
		for (const [id, { closed, opened }] of written.gaps) {
			const gaps = new Map(this.gaps.get(id));
			for (const gap of closed) gaps.delete(gapKey(gap));
			for (const gap of opened) gaps.set(gapKey(gap), gap);
			if (gaps.size === 0) this.gaps.delete(id);
			else this.gaps.set(id, gaps);
		}
		return outcomes;
	}

	#known(id: string): KnownConversation {
		const state = this.states.get(id);
		const posted = state?.newestPosted && this.#update(state.newestPosted.sequence);
		const current = state && this.#update(state.sequence);
		const base = current && (current.base === undefined ? current : this.#update(current.base));
		return {
			state,
			activity: this.activities.get(id),
			newestPosted: posted && {
				change: posted.change,
				current: posted.current,
			},
			base: base && { sequence: base.sequence, size: base.size },
			delta: current?.base === undefined ? undefined : current.record,
			eventIds: new Set(),
			removed: undefined,
			ownership: undefined,
			gaps: this.gaps.get(id) ?? new Map(),
			source: undefined,
			parent: undefined,
			forks: new Map(),
			erasure: undefined,
		};
	}

	#update(sequence: bigint): WrittenUpdate {
		const found = this.updates[Number(sequence) - 1];
		if (found === undefined) throw new Error(`there is no update ${sequence}`);
		return found;
	}
}

const conversations = [randomUUID(), randomUUID()] as const;

/** Returns stats after some calls. */
function statsOf(calls: number): MessageInitShape<typeof ConversationStatsSchema> {
	const tokenUsages = Array.from({ length: calls }, (_, n) => ({
		model: "m",
		promptTokens: 10n,
		responseId: `response-${n}`,
	}));
	const accumulatedTokenUsage = { promptTokens: BigInt(calls * 10) };
	return { usageToMetrics: { agent: { modelName: "m", accumulatedTokenUsage, tokenUsages } } };
}

/** A request, made when the revision of its conversation is known. */
const request = fc
	.record({
		kind: fc.constantFrom("post", "events", "version"),
		id: fc.constantFrom(...conversations),
		title: fc.constantFrom("short", "another", "long ".repeat(100), "longer ".repeat(100)),
		minute: fc.integer({ min: 0, max: 3 }),
		eventId: fc.constantFrom("a", "b", "c", "d", "e"),
		status: fc.constantFrom("idle", "running", "deleting"),
		isStale: fc.boolean(),
		calls: fc.nat(3),
		isNewLife: fc.boolean(),
	})
	.map(
		({ kind, id, title, minute, eventId, status, isStale, calls, isNewLife }) =>
			(revision: bigint): GroupRequest => {
				const at = start + BigInt(minute) * 60n * second;
				if (kind === "post") {
					const createdAt = start - (isNewLife ? 0n : 3600n * second);
					const columns = { title, status, createdAt, updatedAt: minute === 0 ? undefined : at };
					const stats = statsOf(calls);
					const update = sample({
						conversationId: id,
						receivedAt: at,
						record: record({ title, createdAt: fromMicroseconds(createdAt), stats, leafEventId: eventId }),
						columns,
					});
					return { update, judged: undefined };
				}
				if (kind === "events")
					return batch(id, [
						event({
							eventId,
							happenedAt: at - 2000n * second,
							message: title,
							llmResponseId: `response-${calls}`,
							parentId: ["a", "b", undefined, "f"][calls],
						}),
					]);
				const expects = isStale ? revision - 1n : revision;
				const made =
					revision > 0n
						? effect(expects, title)
						: effectOf(expects, record({ title, stats: statsOf(calls) }), { title });
				return batch(id, [stateUpdate({ eventId, happenedAt: at })], {
					effect: { ...made, next: 2n ** 61n + (revision & 255n) + 1n },
				});
			},
	);

function idOf(one: GroupRequest): string {
	return "update" in one ? one.update.conversationId : one.conversationId;
}

test("a group has the outcomes and writes the rows of its requests one after the other", async () => {
	const steps = fc.array(fc.tuple(request, fc.boolean()), { minLength: 1, maxLength: 25 });
	await fc.assert(
		fc.asyncProperty(steps, async (made) => {
			const [single, grouped] = [new MemoryEngine(), new MemoryEngine()];
			const outcomes: AppendOutcome[] = [];
			const groups: GroupRequest[][] = [[]];
			for (const [make, endsGroup] of made) {
				const id = idOf(make(0n));
				const revision = single.states.get(id)?.revision ?? -(single.activities.get(id)?.eventCount ?? 0n);
				const one = make(revision);
				outcomes.push(...(await single.append([one])));
				groups.at(-1)?.push(one);
				if (endsGroup) groups.push([]);
			}
			const together: AppendOutcome[] = [];
			for (const group of groups) together.push(...(await grouped.append(group)));
			expect(together).toEqual(outcomes);
			expect(grouped).toEqual(single);
		}),
		{ numRuns: 300 },
	);
});
