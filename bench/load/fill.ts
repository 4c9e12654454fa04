import { serve } from "../processes/parent.ts";
import { bodyJson, webhookText } from "../requests.ts";
import { fillPlan, keyOfOwner, RARE } from "./fill-plan.ts";
import { HttpLanes } from "./http-lanes.ts";
import { idDigits } from "./plan.ts";

/**
 * Posts conversations. A few of them, evenly spread, differ from all others in every property that lists can filter by.
 */

const CONNECTIONS = 64;
const TITLES = ["Fix the login form", "Update dependencies", "Add a test for dates", "Explain this error"];

serve(fillPlan, async ({ port, key, conversations, first, end, rare, owners }) => {
	const [common, special] = [await bodyJson("small"), await bodyJson("native")];
	const recordOf = (n: number): object => {
		const isRare = n % Math.floor(conversations / rare) === 0;
		const id = idDigits(n) + String(common.id).slice(8);
		return isRare ? { ...special, ...rareMembers(special.agent, n), id } : { ...common, ...commonMembers(n), id };
	};
	// Each owner has conversations in all parts of the log, and the same share of rare ones.
	const keyFor = (n: number) => (owners === undefined ? key : keyOfOwner(key, (n + Math.floor(n / owners)) % owners));
	using connections = await HttpLanes.open(port, CONNECTIONS);
	let next = first;
	await Promise.all(
		connections.lanes.map(async (send) => {
			while (next < (end ?? conversations)) {
				const n = next++;
				const wrong = await send(Buffer.from(webhookText(JSON.stringify(recordOf(n)), keyFor(n))));
				if (wrong !== undefined) throw new Error(wrong);
			}
		}),
	);
	return {};
});

function commonMembers(n: number): object {
	return {
		execution_status: "idle",
		// No events are posted, so none is missing.
		leaf_event_id: null,
		title: `${TITLES[n % TITLES.length]} ${n}`,
		tags: { team: `team${n % 20}` },
		created_at: dateTime(1_790_000_000 + n, 0),
		updated_at: dateTime(1_791_000_000 + n, 0),
	};
}

function rareMembers(agent: object, n: number): object {
	return {
		agent: { ...agent, llm: { model: RARE.model } },
		execution_status: RARE.status,
		title: `Look for the ${RARE.title} in the garden`,
		parent_conversation_id: RARE.parentId,
		leaf_event_id: null,
		tags: { [RARE.tagKey]: RARE.tagValue },
		created_at: dateTime(RARE.created, n),
		updated_at: dateTime(RARE.updated, n),
	};
}

function dateTime(seconds: number, microseconds: number): string {
	return `${new Date(seconds * 1000).toISOString().slice(0, 19)}.${String(microseconds).padStart(6, "0")}Z`;
}
