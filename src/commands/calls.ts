import type { DescMessage, DescMethodUnary } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { type AccessKey, AccessKeyService } from "../../gen/conversations/v1/access_key_service_pb.js";
import { type Budget, BudgetPeriod, BudgetService, BudgetState } from "../../gen/conversations/v1/budget_service_pb.js";
import { ConversationOwnerService } from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import { ConversationSearchService } from "../../gen/conversations/v1/conversation_search_service_pb.js";
import { ConversationSpaceService } from "../../gen/conversations/v1/conversation_space_service_pb.js";
import { ConversationUsageService } from "../../gen/conversations/v1/conversation_usage_service_pb.js";
import { DeliveryState, EndpointState, ForwardingService } from "../../gen/conversations/v1/forwarding_service_pb.js";
import { TRACES_ENDPOINT } from "../traces/otlp.ts";
import { type Call, type Command, SETTINGS, UsageError } from "./options.ts";
import { tableOf } from "./output.ts";

function call<Answer extends DescMessage>(method: DescMethodUnary<DescMessage, Answer>, row: Call<Answer>): Command {
	return {
		...row,
		run: async (config, operands, options) => {
			const { runCall } = await import("./call.ts");
			await runCall(config, method, row, operands, options);
		},
	};
}

const OF_NAME = { operands: ["NAME"], options: ["owner"] } as const;
const { method: keys } = AccessKeyService;
const { method: forwarding } = ForwardingService;
const { method: budgets } = BudgetService;

/** The commands that call one RPC, by their names. */
export const CALLS: Readonly<Record<string, Command>> = {
	"keys add": call(keys.createAccessKey, {
		operands: ["NAME"],
		options: ["scope", "owner", "expires"],
		meaning:
			"create an access key and print it; it has the scopes ingest+read or the given ones, and expires after a TIME such as 90d or 12h, or at a date",
		shown: ({ key }) => key,
		note: ({ accessKey: { owner = "", scopes = [] } = {} }, [name]) => {
			const of = owner === "" ? "" : ` of the owner ${owner}`;
			return `The key ${name}${of} was created with ${scopes.join("+")}. It is shown only once.`;
		},
	}),
	"keys list": call(keys.listAccessKeys, {
		meaning: "print all access keys, without the keys themselves",
		shown: ({ accessKeys }) => {
			const head = ["NAME", "SCOPES", "OWNER", "STATE", "EXPIRES", "LAST USED"];
			const rows = accessKeys.map((key) => {
				const { name, scopes, owner, expiresAt, lastUsedAt } = key;
				return [name, scopes.join("+"), owner, stateOf(key), expiresAt, lastUsedAt];
			});
			return tableOf([head, ...rows]);
		},
	}),
	"keys revoke": call(keys.revokeAccessKey, {
		operands: ["NAME"],
		meaning: "end an access key for good",
		shown: ({ accessKey }, [name]) =>
			`The key ${name} is revoked since ${accessKey?.revokedAt && timestampDate(accessKey.revokedAt).toISOString()}.`,
	}),
	"owners assign": call(ConversationOwnerService.method.assignOwner, {
		operands: ["TEAM"],
		options: ["sender", "ids", "no-sender", "filter", "all"],
		meaning:
			"give conversations an owner: those without an owner whose first post came from a sender, those with the given ids, with --no-sender those without an owner that nobody is known to have posted (with --filter only those that match, such as tag=team:a&created_to=2026-01-01T00:00:00Z), or with --all all that have none",
		request: ({ sender, ids, "no-sender": noSender, all }, filter) => {
			const given = [sender, ids, noSender, all].filter((value) => value !== undefined);
			const [name = "", ...others] = sender ?? [];
			if (given.length !== 1 || others.length > 0)
				throw new UsageError("Give exactly one of --sender, --ids, --no-sender and --all");
			if (filter !== undefined && noSender === undefined) throw new UsageError("--filter is only for --no-sender");
			if (sender !== undefined) return { sender: name };
			if (ids !== undefined) return { ids: { ids: ids.split(",") } };
			if (noSender === undefined) return { all_without_owner: true };
			return { without_sender: filter === undefined ? {} : { filter } };
		},
		shown: ({ assigned, leftWithoutSender: left }, [team]) => [
			`${assigned} ${assigned === 1n ? "conversation belongs" : "conversations belong"} to ${team} now.`,
			...(left === 0n
				? []
				: [
						`${left} without an owner ${left === 1n ? "was" : "were"} left, because nobody is known to have posted ${left === 1n ? "it" : "them"}; --no-sender assigns them.`,
					]),
		],
	}),
	"endpoints list": call(forwarding.listEndpoints, {
		meaning: "print all endpoints, to which the service sends what happens",
		shown: ({ endpoints }) => {
			const head = ["NAME", "OWNER", "STATE", "LAG", "WAITING", "LOST", "LAST SUCCESS", "URL"];
			const rows = endpoints.map(({ name, owner, state, lag, waiting, lost, lastSuccessAt, url }) => [
				...[name, owner, EndpointState[state].toLowerCase(), lag, waiting, lost, lastSuccessAt, url],
			]);
			return tableOf([head, ...rows]);
		},
	}),
	"endpoints show": call(forwarding.getEndpoint, { ...OF_NAME, meaning: "print an endpoint" }),
	"endpoints create": call(forwarding.createEndpoint, {
		operands: ["NAME"],
		options: ["url", "changes", "filter", "form", "include", "owner"],
		meaning:
			"create an endpoint and print its secret; it is told of changes such as FINISHED,FAILED, with --filter only of conversations that match, such as tag=team:a",
		shown: ({ secret }) => secret,
		note: (_, [name]) => `The endpoint ${name} was created. Its secret is shown only once.`,
	}),
	"endpoints pause": call(forwarding.pauseEndpoint, {
		...OF_NAME,
		meaning: "send nothing to an endpoint until it is resumed",
		shown: (_, [name]) => `The endpoint ${name} is paused.`,
	}),
	"endpoints resume": call(forwarding.resumeEndpoint, {
		operands: ["NAME"],
		options: ["from", "owner"],
		meaning: "send again to an endpoint that is paused or disabled, from its position or with --from now",
		shown: (_, [name], { from }) => `The endpoint ${name} goes on from ${from === "now" ? "now" : "its position"}.`,
	}),
	"endpoints test": call(forwarding.testEndpoint, {
		...OF_NAME,
		meaning: "send a test to an endpoint",
		shown: ({ success, try: one }, [name]) => {
			if (!success) throw new Error(`the endpoint did not accept it: ${one?.error}`);
			return `The endpoint ${name} answered with ${one?.status} after ${one?.durationMs} ms.`;
		},
	}),
	"endpoints rotate-secret": call(forwarding.rotateEndpointSecret, {
		...OF_NAME,
		meaning: "give an endpoint a new secret, and print it",
		shown: ({ secret }) => secret,
		note: (_, [name]) =>
			`The endpoint ${name} has a new secret, which is shown only once. The former one signs for 24 hours, too.`,
	}),
	"endpoints replay": call(forwarding.replayEndpoint, {
		operands: ["NAME"],
		options: ["from", "to", "owner"],
		needs: ["from", "to"],
		meaning: "send the updates from one sequence to another again",
		shown: replayed,
	}),
	"endpoints deliveries": call(forwarding.listDeliveries, {
		operands: ["NAME"],
		options: ["status", "owner"],
		meaning:
			"print the newest 100 deliveries of an endpoint, with --status only those that are waiting, delivered, failed, skipped or lost",
		request: () => ({ page_size: 100 }),
		shown: ({ deliveries }) => {
			const head = ["ID", "CHANGE", "STATE", "NOTICED", "TRIES", "LAST", "NEXT", "CONVERSATION"];
			const rows = deliveries.map(({ id, change, state, createdAt, tries, nextTryAt, conversationId }) => {
				const last = tries.at(-1);
				const word = DeliveryState[state].toLowerCase();
				return [id, change, word, createdAt, tries.length, last?.error || last?.status, nextTryAt, conversationId];
			});
			return tableOf([head, ...rows]);
		},
	}),
	"endpoints retry": call(forwarding.retryDelivery, {
		operands: ["NAME", "ID"],
		options: ["owner"],
		meaning: "send a delivery again",
		shown: (_, [, id]) => `The delivery ${id} is sent again.`,
	}),
	"endpoints delete": call(forwarding.deleteEndpoint, {
		...OF_NAME,
		meaning: "remove an endpoint with its deliveries",
		shown: (_, [name]) => `The endpoint ${name} is deleted.`,
	}),
	"budgets list": call(budgets.listBudgets, {
		meaning: "print all budgets with what is spent of them",
		shown: ({ budgets }) => {
			const head = ["NAME", "OWNER", "PERIOD", "STATE", "SPENT", "LIMIT", "FORECAST"];
			const rows = budgets.map((budget) => {
				const { name, owner, period, state, spent, forecast } = budget;
				const [of, is] = [BudgetPeriod[period].toLowerCase(), BudgetState[state].toLowerCase()];
				return [name, owner, of, is, spent, limitOf(budget), forecast];
			});
			return tableOf([head, ...rows]);
		},
	}),
	"budgets show": call(budgets.getBudget, {
		...OF_NAME,
		meaning: "print a budget with the conversations that spent the most",
	}),
	"budgets create": call(budgets.createBudget, {
		operands: ["NAME", SETTINGS],
		options: ["filter", "owner"],
		meaning:
			"create a budget with settings such as amount=200 period=week thresholds=0.8,1, with --filter only of conversations that match, such as tag=team:a",
		shown: (_, [name]) => `The budget ${name} was created.`,
	}),
	"budgets update": call(budgets.updateBudget, {
		operands: ["NAME", SETTINGS],
		options: ["filter", "owner"],
		meaning: "change settings of a budget, such as amount=300; without a value, a setting gets its default",
		shown: (_, [name]) => `The budget ${name} was changed.`,
	}),
	"budgets delete": call(budgets.deleteBudget, {
		...OF_NAME,
		meaning: "remove a budget",
		shown: (_, [name]) => `The budget ${name} is deleted.`,
	}),
	"views reset": call(ConversationSpaceService.method.resetViews, {
		meaning: "derive anew what lists, counts and searches of conversations read; for some time they get a 503",
		shown: () => "The views were derived anew from what is stored.",
	}),
	"usage rebuild": call(ConversationUsageService.method.startUsageRebuild, {
		meaning: "count the usage of all conversations anew from the stored updates and events",
		shown: () => "The usage was counted anew from what is stored.",
	}),
	"search rebuild": call(ConversationSearchService.method.rebuildSearchIndex, {
		meaning: "write the index of search anew from the stored events",
		shown: () => "The running service, or else the next one that starts, writes the index of search anew.",
	}),
	traces: call(forwarding.replayEndpoint, {
		options: ["from", "to"],
		needs: ["from", "to"],
		meaning:
			"send the runs that ended with the updates from one sequence to another again to TRACES_OTLP_ENDPOINT; at most 10000 updates",
		request: () => ({ name: TRACES_ENDPOINT }),
		shown: replayed,
	}),
};

function replayed({ deliveries }: { readonly deliveries: bigint }): string {
	return `${deliveries} ${deliveries === 1n ? "delivery is" : "deliveries are"} sent again.`;
}

function stateOf({ configured, revokedAt, expiresAt }: AccessKey): string {
	if (configured) return "configured";
	if (revokedAt !== undefined) return "revoked";
	return expiresAt !== undefined && timestampDate(expiresAt) <= new Date() ? "expired" : "valid";
}

/** Returns what a budget limits: an amount, tokens, or the rule in place of them. */
function limitOf({ amount, tokens, silentMinutes, waitingMinutes, gapMinutes, stalledEvents }: Budget): string {
	if (amount !== undefined) return `${amount}`;
	if (tokens !== undefined) return `${tokens} tokens`;
	if (silentMinutes !== undefined) return `silent for ${silentMinutes} minutes`;
	if (waitingMinutes !== undefined) return `waiting for ${waitingMinutes} minutes`;
	if (gapMinutes !== undefined) return `gaps for ${gapMinutes} minutes`;
	return stalledEvents === undefined ? "stuck" : `${stalledEvents} events without a leaf`;
}
