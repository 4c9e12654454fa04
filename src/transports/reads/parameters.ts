import { create } from "@bufbuild/protobuf";
import {
	type ConversationEventFilter,
	ConversationEventFilterSchema,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import type { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import type { Principal } from "../../access/keys.ts";
import { authorizeSecrets } from "../../conversations/read/authorize-secrets.ts";
import { invalid } from "../../conversations/read/filter.ts";
import type { UpdateViewOptions } from "../../conversations/read/update-view.ts";
import { statusNamed } from "../../conversations/status.ts";
import { ServiceError } from "../../errors.ts";
import { setMember } from "../../record/json/json-value.ts";
import { type SecretsForm, secretsForms } from "../../record/secrets/secret-walk.ts";
import type { Query } from "./query.ts";

// The query parameters that several routes have: filters, and how records and events are shown.

export const FILTER_PARAMETERS = [
	"execution_status",
	"execution_status_not",
	"agent_kind",
	"model",
	"parent_conversation_id",
	"forked_from_conversation_id",
	"tag",
	"tag_key",
	"created_from",
	"created_to",
	"updated_from",
	"updated_to",
	"title_contains",
	"sender",
	"owner",
	"activity_from",
	"activity_to",
	"cost_from",
	"cost_to",
	"has_error",
	"has_gaps",
	"id",
] as const;
/** Those of the parameters of a filter that may occur several times. */
export const REPEATABLE = ["execution_status", "execution_status_not", "tag", "id"] as const;
const ORIGINS = {
	posted: UpdateOrigin.POSTED,
	events: UpdateOrigin.EVENTS,
	reconciled: UpdateOrigin.RECONCILED,
} as const;
export const EVENT_FILTER_PARAMETERS = [
	"kind",
	"source",
	"happened_from",
	"happened_to",
	"kind_not",
	"event_id",
] as const;
/** Those of the parameters of a filter of events that may occur several times. */
export const EVENT_REPEATABLE = ["kind", "kind_not", "source"] as const;

/** @throws ServiceError as {@link authorizeSecrets}, or `invalid_argument` for an unknown form */
export function secretsOf(parameters: Query<"secrets">, principal: Principal | undefined): SecretsForm {
	const form = parameters.word("secrets", secretsForms);
	authorizeSecrets(known(principal), form);
	return form;
}

/**
 * Returns which updates are shown, and how. `origin` is undefined for every origin.
 *
 * @throws ServiceError as {@link secretsOf}, and `invalid_argument` for another parameter
 */
export function updateViewOf(
	parameters: Query<"view" | "origin" | "secrets">,
	principal: Principal | undefined,
): UpdateViewOptions & { readonly origin: UpdateOrigin | undefined } {
	return {
		origin:
			parameters.text("origin") === ""
				? undefined
				: ORIGINS[parameters.word("origin", ["posted", "events", "reconciled"])],
		full: parameters.word("view", ["summary", "full"]) === "full",
		secrets: secretsOf(parameters, principal),
		secretPaths: known(principal).scopes.has("secrets"),
	};
}

/** @throws ServiceError `unauthenticated` for a request without a key, which the gate lets through on public routes only */
export function known(principal: Principal | undefined): Principal {
	if (principal === undefined) throw new ServiceError("unauthenticated", "The access key is missing");
	return principal;
}

/** Returns the filter in the form of the RPCs, so that the same rules apply to both. */
export function filterOf(parameters: Query<(typeof FILTER_PARAMETERS)[number]>): ConversationFilter {
	return create(ConversationFilterSchema, {
		executionStatuses: statusesOf("execution_status", parameters),
		executionStatusesNot: statusesOf("execution_status_not", parameters),
		agentKind: parameters.text("agent_kind"),
		model: parameters.text("model"),
		parentConversationId: parameters.text("parent_conversation_id"),
		forkedFromConversationId: parameters.text("forked_from_conversation_id"),
		tags: tagsOf(parameters.texts("tag")),
		tagKey: parameters.text("tag_key"),
		titleContains: parameters.text("title_contains"),
		sender: parameters.text("sender"),
		owner: parameters.text("owner"),
		createdFrom: parameters.dateTime("created_from"),
		createdTo: parameters.dateTime("created_to"),
		updatedFrom: parameters.dateTime("updated_from"),
		updatedTo: parameters.dateTime("updated_to"),
		activityFrom: parameters.dateTime("activity_from"),
		activityTo: parameters.dateTime("activity_to"),
		costFrom: parameters.decimal("cost_from"),
		costTo: parameters.decimal("cost_to"),
		hasError: parameters.boolean("has_error"),
		hasGaps: parameters.boolean("has_gaps"),
		ids: parameters.texts("id"),
	});
}

function statusesOf<Name extends (typeof FILTER_PARAMETERS)[number]>(
	name: Name,
	parameters: Query<(typeof FILTER_PARAMETERS)[number]>,
): ConversationExecutionStatus[] {
	return parameters.texts(name).flatMap((text) => {
		if (text === "") return [];
		const status = statusNamed(text);
		if (status === undefined) throw invalid(name, "is not a known status");
		return [status];
	});
}

export function eventFilterOf(parameters: Query<(typeof EVENT_FILTER_PARAMETERS)[number]>): ConversationEventFilter {
	return create(ConversationEventFilterSchema, {
		kinds: parameters.texts("kind"),
		kindsNot: parameters.texts("kind_not"),
		sources: parameters.texts("source"),
		happenedFrom: parameters.dateTime("happened_from"),
		happenedTo: parameters.dateTime("happened_to"),
		eventId: parameters.text("event_id"),
	});
}

/** The form of a parameter `tag`. */
export const TAG = /^([^:]+):(.*)$/s;

/** Returns the tags of texts `key:value`. The value may contain further colons. */
function tagsOf(texts: readonly string[]): Record<string, string> {
	const tags: Record<string, string> = {};
	for (const text of texts) {
		const [, key, value] = TAG.exec(text) ?? [];
		if (key === undefined || value === undefined) throw invalid("tag", "must have the form key:value");
		if (Object.hasOwn(tags, key) && tags[key] !== value) throw invalid("tag", "has two values for the same key");
		setMember(tags, key, value);
	}
	return tags;
}
