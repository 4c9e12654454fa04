import fc from "fast-check";
import { expect, test } from "vitest";
import { type FetchedOver, fetchedChanges, type ListedEvent } from "../../src/events/fetched-record.ts";
import type { ExactJsonObject } from "../../src/record/json/json-value.ts";
import { RecordFormat } from "../../src/record/record-format.ts";

const format = new RecordFormat();
const ID = "11111111-1111-4111-8111-111111111111";
const iso = (time: bigint) => new Date(Date.parse("2026-11-20T10:00:00Z") + Number(time) * 1000).toISOString();

/** Members of the state that events report, and members that only records have. */
const STATE = ["execution_status", "tags", "max_iterations"] as const;
const METADATA = ["title", "parent_conversation_id"] as const;

const times = fc.bigInt({ min: 1n, max: 9n });
const members = fc.record({
	title: fc.constantFrom(null, "one", "two"),
	parent_conversation_id: fc.constantFrom(null, ID),
	execution_status: fc.constantFrom("idle", "running", "paused", "finished"),
	tags: fc.constantFrom({}, { a: "one" }, { a: "two", b: "one" }),
	max_iterations: fc.constantFrom(100, 200),
	runtime_info: fc.constantFrom(null, { runtime_status: "available" }),
	future_member: fc.constantFrom("one", "two"),
});

function recordOf(values: ExactJsonObject, updatedAt: bigint | undefined): ExactJsonObject {
	const json = {
		id: ID,
		workspace: { kind: "LocalWorkspace", working_dir: "/workspace" },
		agent: { kind: "ACPAgent", acp_command: ["acp"] },
		...(updatedAt === undefined ? {} : { updated_at: iso(updatedAt) }),
		...values,
	};
	return format.toJson(format.fromJson(json));
}

const overs = fc
	.record({
		present: members,
		fetched: members,
		posted: fc.option(times, { nil: undefined }),
		updatedAt: times,
		events: fc.dictionary(fc.constantFrom(...STATE), times, { maxKeys: 3, noNullPrototype: true }),
		listed: fc.array(fc.record({ time: times, status: fc.constantFrom(undefined, "running", "paused") }), {
			maxLength: 4,
		}),
		hasLeaf: fc.boolean(),
	})
	.map(({ present, fetched, posted, updatedAt, events, listed, hasLeaf }): FetchedOver => {
		const newestFirst = listed.toSorted((a, b) => Number(b.time - a.time));
		const events_ = newestFirst.map(({ time, status }, n): ListedEvent => {
			const value = status === undefined ? undefined : { key: "execution_status", value: status };
			return { id: `event ${n}`, time, members: value };
		});
		const leaf = hasLeaf
			? { leaf_event_id: events_.findLast(({ members: value }) => value === undefined)?.id ?? null }
			: {};
		return {
			present: recordOf(present, posted),
			fetched: recordOf({ ...fetched, ...leaf }, updatedAt),
			secrets: [],
			reportTimes: { posted, events },
			updatedAt,
			listed: events_,
		};
	});

/** Returns the present record after the changes. */
function applied(over: FetchedOver): {
	readonly record: ExactJsonObject;
	readonly changes: ReturnType<typeof fetchedChanges>;
} {
	const changes = fetchedChanges(format, over);
	const record = format.fromJson(over.present);
	for (const name of changes.changed.filter((other) => other !== "unnamed_members"))
		format.replaceMember(record, name, changes.values);
	if (changes.changed.includes("unnamed_members")) record.unnamedMembers = changes.values.unnamedMembers;
	return { record: format.toJson(record), changes };
}

test("a record that is fetched again changes nothing", () => {
	fc.assert(
		fc.property(overs, (over) => {
			const { record, changes } = applied(over);
			const again = applied({ ...over, present: record, reportTimes: changes.reportTimes });
			expect(again.changes.changed).toEqual([]);
			expect(again.changes.reportTimes.posted).toEqual(changes.reportTimes.posted);
		}),
	);
});

test("an equal or older record replaces no posted value, and a later one replaces all that no later event set", () => {
	fc.assert(
		fc.property(overs, (over) => {
			const { posted, events } = over.reportTimes;
			const { updatedAt = 0n } = over;
			const { record, changes } = applied(over);
			const isNewer = posted === undefined || updatedAt > posted;
			for (const name of [...METADATA, "future_member", "updated_at"]) {
				const fills = name === "title" && over.present.title === null && updatedAt === posted;
				expect(record[name]).toEqual((isNewer || fills ? over.fetched : over.present)[name]);
			}
			for (const name of STATE) {
				const reportedAt = events[name];
				if (reportedAt === undefined && !isNewer) expect(record[name]).toEqual(over.present[name]);
				// Nothing that the agent server listed or wrote is as late as that report.
				const all = [updatedAt, ...over.listed.map(({ time }) => time)];
				if (reportedAt !== undefined && all.every((time) => reportedAt > time)) {
					expect(record[name]).toEqual(over.present[name]);
					expect(changes.reportTimes.events[name]).toBe(reportedAt);
				}
			}
			expect(record.runtime_info).toEqual(over.fetched.runtime_info);
			expect(record.id).toBe(ID);
		}),
	);
});
