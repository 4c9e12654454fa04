import { SearchOrder } from "../../../gen/conversations/v1/conversation_search_service_pb.js";
import type { Principal } from "../../access/keys.ts";
import type { SearchConversations, SearchHit } from "../../conversations/read/search.ts";
import { encodeSummary } from "../../conversations/read/stored-summary.ts";
import { stringifyExactJson } from "../../record/json/exact-json.ts";
import type { Route } from "../http/router.ts";
import { pageOf, Query } from "./query.ts";
import type { FilterParameters } from "./usage.ts";

/** Path of the search under the configured base path. */
export const SEARCH_PATH = "/api/v1/search";

const ORDERS = { newest: SearchOrder.NEWEST, relevance: SearchOrder.RELEVANCE } as const;
const PARAMETERS = ["query", "order_by", "page_size", "page_token"] as const;

/** Returns the route of the search. */
export function searchRoute<Name extends string>(
	basePath: string,
	searchOf: (principal: Principal | undefined) => SearchConversations,
	filter: FilterParameters<Name>,
): Route {
	return {
		method: "GET",
		path: `${basePath}${SEARCH_PATH}`,
		scope: "read",
		handle: async ({ search, principal, signal }) => {
			const names: readonly (Name | (typeof PARAMETERS)[number])[] = [...PARAMETERS, ...filter.names];
			const parameters = new Query(search, names, filter.repeatable);
			const asked = {
				...pageOf(parameters),
				query: parameters.text("query"),
				orderBy: ORDERS[parameters.word("order_by", ["newest", "relevance"])],
				filter: filter.read(parameters),
			};
			const { hits, nextPageToken, indexedThrough } = await searchOf(principal).search(asked, signal, "");
			return stringifyExactJson({
				hits: hits.map(hitJson),
				next_page_token: nextPageToken,
				indexed_through_sequence: indexedThrough,
			});
		},
	};
}

function hitJson({ summary, places }: SearchHit) {
	return {
		summary: encodeSummary(summary),
		places: places.map(({ sequence, field, snippet, ranges }) => ({
			sequence,
			field,
			snippet,
			ranges: ranges.map(({ start, end }) => ({ start, end })),
		})),
	};
}
