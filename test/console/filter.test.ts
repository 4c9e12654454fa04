import { afterEach, describe, expect, test } from "vitest";
import { apiParametersOf, faultOf, filterOf } from "../../console/src/pages/conversations/filter.ts";
import { zone } from "../../console/src/parts/days.ts";
import { ListConversationsRequestSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import { conditionsOf } from "../../src/conversations/read/filter.ts";
import { parametersOf, readRequest } from "../../src/transports/reads/parameters.ts";

/** What the address of a list selects. */

const NOW = Date.parse("2026-11-25T12:00:00Z");
const ID = "7c9e6679-7425-40de-944b-e07fc1f90ae8";

afterEach(() => {
	zone.value = "local";
});

/** Returns the conditions of an address. */
function chosenBy(search: string) {
	return conditionsOf(filterOf(new URLSearchParams(search), NOW));
}

/** Returns the conditions of the same parameters in the JSON API. */
function selectedBy(search: string) {
	const parameters = parametersOf(ListConversationsRequestSchema, "/api/v1/conversations", false);
	return conditionsOf(readRequest(ListConversationsRequestSchema, parameters, { params: {}, search }).filter);
}

test.each([
	"execution_status=finished",
	"execution_status=finished&execution_status=paused",
	"execution_status_not=finished&execution_status_not=error",
	"agent_kind=ACPAgent&model=model-deep-4&sender=second&owner=red",
	"tag=team:core&tag=repo:billing&tag=empty:&tag_key=repo",
	"title_contains=MIGRATE",
	`parent_conversation_id=${ID}`,
	`forked_from_conversation_id=${ID}`,
	"created_from=2026-11-24T08:00:00Z&created_to=2026-11-24T09:30:00.5Z",
	"updated_from=2026-11-24T08:00:00Z&updated_to=2026-11-24T09:30:00Z",
	"activity_from=2026-11-24T08:00:00Z&activity_to=2026-11-24T09:30:00Z",
	"score=thumbs:true&score=tests_passed>=0.8&score=none:cause&score=cause:misread%20task",
	"cost_from=0.3&cost_to=1",
	"has_error=true&has_gaps=false",
	"has_error=false&has_gaps=true",
	`id=${ID}&id=5a3e1f00-0000-4000-8000-000000000001`,
])("%s selects what the API selects by it", (search) => {
	expect(chosenBy(search)).toEqual(selectedBy(search));
	expect(chosenBy(search)).not.toEqual([]);
	// The parameters of a download select the same.
	expect(selectedBy(apiParametersOf(new URLSearchParams(search), NOW).toString())).toEqual(chosenBy(search));
});

describe("a day of a filter", () => {
	const ofViewer = (day: number) => new Date(2026, 6, day);
	const ofUtc = (day: number) => new Date(Date.UTC(2026, 6, day));

	test.each([
		["created_from=2026-07-02&created_to=2026-07-03", "created", 2, 3],
		["created=2026-07-02", "created", 2, 3],
		["activity=2026-07-01..2026-07-02", "activity", 1, 3],
		["updated=2026-07-01..2026-07-05&updated_from=2026-07-02&updated_to=2026-07-04", "updated", 2, 4],
	])("%s is one of the viewer, or of UTC", (search, subject, from, to) => {
		for (const [name, start] of [
			["local", ofViewer],
			["utc", ofUtc],
		] as const) {
			zone.value = name;
			const asked = new URLSearchParams({
				[`${subject}_from`]: start(from).toISOString(),
				[`${subject}_to`]: start(to).toISOString(),
			}).toString();
			expect(chosenBy(search)).toEqual(selectedBy(asked));
			const query = new URLSearchParams(`${search}&zone=${name}`);
			expect(apiParametersOf(query, NOW).toString()).toBe(asked);
		}
	});
});

test("minutes of silence count back from now, and the API has no parameter for them", () => {
	const search = "silent_minutes=10&execution_status=running";
	const asked = "execution_status=running&activity_to=2026-11-25T11%3A50%3A00.000Z";
	expect(chosenBy(search)).toEqual(selectedBy(asked));
	expect(apiParametersOf(new URLSearchParams(search), NOW).toString()).toBe(asked);
});

const TIME = "must be a day or a time such as yesterday, 2026-11-23 or 2026-11-23T08:00:00Z";

test.each([
	["has_error", "yes", "must be true or false"],
	[
		"execution_status",
		"Running",
		"must be one of running, waiting_for_confirmation, error, stuck, paused, idle, finished, deleting",
	],
	["silent_minutes", "x", "must be a number such as 30 or 0.5"],
	["cost_from", "-1", "must be a number such as 30 or 0.5"],
	["created", "banana", "must be days such as today, last 7 days, 2026-11-23 or 2026-11-20..2026-11-23"],
	...["banana", "2026-02-30", "2026-13-01", "2026-07", "2026-07-02T25:00:00Z"].map((value) => [
		"created_from",
		value,
		TIME,
	]),
])("the value of %s may not be %s, and is left out of a filter", (name = "", value = "", words) => {
	expect(faultOf(name, value)).toBe(`${name} ${words}`);
	expect(chosenBy(`${name}=${value}&model=model-deep-4`)).toEqual(chosenBy("model=model-deep-4"));
});

test("any text is a value of the filters that have no form", () => {
	expect([faultOf("model", "yes"), faultOf("has_error", "true"), faultOf("unknown", "x")]).toEqual([
		undefined,
		undefined,
		undefined,
	]);
});
