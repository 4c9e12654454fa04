import fc from "fast-check";
import { type Columns, type Filter, second, start } from "../../store/samples.ts";

/** Few values each, so that filters often match records. `constructor` is also a name in Object.prototype. */
const status = fc.constantFrom("idle", "running", "deleting");
const agentKind = fc.constantFrom("ACPAgent", "Agent");
const model = fc.constantFrom("model-a", "model-b", "");
const parentId = fc.constantFrom("0190d6a0-0000-7000-8000-00000000000a", "0190d6a0-0000-7000-8000-00000000000b");
const tagKey = fc.constantFrom("a", "b", "constructor");
const tags = fc.dictionary(tagKey, fc.constantFrom("1", "2", ""), { maxKeys: 2 });
const time = fc.nat({ max: 9 }).map((seconds) => start + BigInt(seconds) * second);
const title = fc.stringMatching(/^[aAbBzZéÉ%_😀 ]{0,6}$/u);
const needle = fc.stringMatching(/^[aAbBzZéÉ%_😀 ]{1,4}$/u);

/** Random columns of a record. */
export const columns: fc.Arbitrary<Columns> = fc.record({
	status,
	agentKind,
	model,
	title: fc.option(title, { nil: undefined }),
	parentId: fc.option(parentId, { nil: undefined }),
	createdAt: fc.option(time, { nil: undefined }),
	updatedAt: fc.option(time, { nil: undefined }),
	tags,
});

/** Random filters. */
export const storeFilters: fc.Arbitrary<Filter> = fc.record(
	{
		status,
		agentKind,
		model: fc.constantFrom("model-a", "model-b"),
		parentId,
		tags,
		tagKey,
		createdFrom: time,
		createdTo: time,
		updatedFrom: time,
		updatedTo: time,
		titleContains: needle,
	},
	{ requiredKeys: [] },
);
