import { randomUUID } from "node:crypto";
import { type JsonObject, type JsonValue, toJson } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ListConversationEventsResponseSchema } from "../../gen/conversations/v1/conversation_event_service_pb.js";
import {
	CountConversationsResponseSchema,
	ReportUsageResponseSchema,
} from "../../gen/conversations/v1/conversation_report_service_pb.js";
import {
	ConversationSenderService,
	ListSendersResponseSchema,
} from "../../gen/conversations/v1/conversation_sender_service_pb.js";
import {
	GetConversationResponseSchema,
	ListConversationsResponseSchema,
	ListConversationUpdatesResponseSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import {
	clientOf,
	type Endpoints,
	EVENT_WEBHOOK,
	eventClient,
	PROTOCOLS,
	type Protocol,
	postWebhook,
	readClient,
	reportClient,
} from "../support/clients.ts";
import { object, record } from "../support/fixtures.ts";
import { startTestService } from "../support/service.ts";

/** Is in everything that red may not see, and in nothing else. */
const CANARY = "canary";
const RED = "key-of-the-red-agents";
const KEYS: Readonly<Record<string, { readonly key: string; readonly owner: string | undefined }>> = {
	operator: { key: "key-of-the-operator", owner: undefined },
	red: { key: RED, owner: "red" },
	"red-too": { key: "second-key-of-red-agents", owner: "red" },
	[`${CANARY}-blue`]: { key: "key-of-the-blue-agents", owner: `${CANARY}-owner` },
};
const ACCESS_KEYS = Object.entries(KEYS)
	.map(([name, { key, owner }]) => `${name}:${key}:ingest+read${owner === undefined ? "" : `@${owner}`}`)
	.join();
const REFUSED = "The conversation does not belong to the owner of this key";

interface Operation {
	readonly by: string;
	/** Index of the conversation. The parent of each is the one before. */
	readonly conversation: number;
	readonly kind: "record" | "event" | "state" | "invalid record" | "invalid batch";
}

const operations = fc.array(
	fc.record({
		by: fc.constantFrom(...Object.keys(KEYS)),
		conversation: fc.nat(3),
		kind: fc.constantFrom<Operation["kind"][]>("record", "record", "event", "state", "invalid record", "invalid batch"),
	}),
	{ minLength: 6, maxLength: 14 },
);

/** What a reader asks for. */
interface Asked {
	readonly protocol: Protocol;
	readonly pageSize: number;
	readonly orderBy: number;
	readonly groupBy: string;
	/** Number of the update after which a watch is resumed. */
	readonly resumed: number;
}

const asked = fc.record({
	protocol: fc.constantFrom(...PROTOCOLS),
	pageSize: fc.integer({ min: 1, max: 3 }),
	orderBy: fc.nat(5),
	groupBy: fc.constantFrom("status", "model", "sender", "owner", "tag_key", "tag:team"),
	resumed: fc.nat(3),
});

/** Posts to the JSON webhooks. Returns the status and the text of the answer. */
async function post(to: Endpoints, operation: Operation, id: string, parent: string, n: number, isReds: boolean) {
	const { by, kind, conversation } = operation;
	const key = KEYS[by]?.key ?? "";
	const word = isReds ? "plain" : CANARY;
	const text = `${word} ${n}`;
	const at = `2026-01-01T00:00:${String(n + 10)}`;
	const event = { id: `event ${n}`, timestamp: at, source: "user" };
	const bodies: Record<Operation["kind"], () => JsonValue> = {
		record: () =>
			record({
				id,
				parent_conversation_id: parent,
				title: text,
				tags: { team: text, [`key${n}`]: text },
				created_at: "2026-01-01T00:00:00Z",
				updated_at: `${at}Z`,
				execution_status: n % 2 === 0 ? "running" : "idle",
				// One that changes is booked by when the view follows.
				stats: { usage_to_metrics: { agent: { model_name: `${word} ${conversation}`, accumulated_cost: n } } },
			}),
		event: () => [{ ...event, kind: "MessageEvent", llm_message: { role: "user", content: [{ type: "text", text }] } }],
		state: () => [{ ...event, source: "environment", kind: "ConversationStateUpdateEvent", key: "title", value: text }],
		"invalid record": () => ({ id, title: text }),
		"invalid batch": () => [{ id: text }],
	};
	const path = kind === "record" || kind === "invalid record" ? undefined : `${EVENT_WEBHOOK}/${id}`;
	const response = await postWebhook(to, key, JSON.stringify(bodies[kind]()), {}, path);
	return { status: response.status, text: (await response.text()).replaceAll(/\d+/g, "#") };
}

/** Members that tell when something arrived, or a number of a sequence. */
const DIFFERENT =
	/^(|previous|latest)_?sequence$|(received|run_?started)_?at|(first|last)_?post_?at|refusals|page_?token/i;

/** Returns an answer without the members in which two services differ. */
function comparable(value: JsonValue): JsonValue {
	if (Array.isArray(value)) return value.filter((item) => !isOnlyRefused(item)).map(comparable);
	if (typeof value !== "object" || value === null) return value;
	// A summary without a status is that of a conversation without a record, which has times of receipt.
	const isWithoutRecord = "gaps" in value && !("executionStatus" in value) && !("execution_status" in value);
	return Object.fromEntries(
		Object.entries(value).flatMap(([name, member]) => {
			if (/^since$/.test(name) || (isWithoutRecord && /^created_?at$/i.test(name))) return [];
			if (DIFFERENT.test(name) || name === "eventSequence" || name === "event_sequence") return [];
			const kept = comparable(member);
			// A message leaves out an empty list, so one of senders that were only refused is left out, too.
			return name === "senders" && Array.isArray(kept) && kept.length === 0 ? [] : [[name, kept]];
		}),
	);
}

/** Whether a value is a sender of which nothing was accepted. It is listed once its refusals are written, some time later. */
function isOnlyRefused(value: JsonValue): boolean {
	if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
	const isSender = Object.keys(value).some((name) => /^refusals/.test(name));
	return isSender && (value.firstPostAt ?? value.first_post_at ?? null) === null;
}

/** Returns what a watch sends until its first heartbeat, which comes when it has caught up. */
async function untilCaughtUp<Message>(
	watch: (options: { readonly signal: AbortSignal }) => AsyncIterable<Message>,
	read: (message: Message) => JsonValue | undefined,
): Promise<JsonValue[]> {
	const end = new AbortController();
	const found: JsonValue[] = [];
	try {
		for await (const message of watch({ signal: end.signal })) {
			const entry = read(message);
			// A stream ends by an error when its client gives it up.
			if (entry === undefined) end.abort();
			else found.push(entry);
		}
	} catch (error) {
		if (!end.signal.aborted) throw error;
	}
	return found;
}

/** Returns everything that red is answered, in a form in which two services can be compared. */
async function seen(from: Endpoints, ids: readonly string[], ask: Asked): Promise<Record<string, JsonValue>> {
	const { protocol, pageSize, orderBy, groupBy, resumed } = ask;
	const reads = readClient(from, protocol, RED);
	const events = eventClient(from, protocol, RED);
	const reports = reportClient(from, protocol, RED);
	const answers: Record<string, JsonValue> = {};
	/** Adds an answer, or the error. The numbers in its message are sequences. */
	const add = async (name: string, read: () => Promise<JsonValue>): Promise<void> => {
		answers[name] = await read().catch((reason: unknown) => {
			const error = ConnectError.from(reason);
			return [Code[error.code] ?? "", error.rawMessage.replaceAll(/\d+/g, "#")];
		});
	};
	/** Adds all pages of a list. */
	const addPages = (name: string, page: (token: string) => Promise<{ json: JsonObject; next: string }>) =>
		add(name, async () => {
			const pages: JsonValue[] = [];
			for (let token: string | undefined = ""; token !== undefined; ) {
				const { json, next } = await page(token);
				pages.push(json);
				token = next === "" ? undefined : next;
			}
			return pages;
		});

	let sequences: bigint[] = [];
	let eventSequences: bigint[] = [];
	for (const conversationId of ["", ...ids]) {
		await addPages(`updates of ${conversationId}`, async (pageToken) => {
			const page = await reads.listConversationUpdates({ conversationId, pageSize, pageToken });
			if (conversationId === "") sequences = [...sequences, ...page.updates.map(({ sequence }) => sequence)];
			return { json: object(toJson(ListConversationUpdatesResponseSchema, page)), next: page.nextPageToken };
		});
		await addPages(`events of ${conversationId}`, async (pageToken) => {
			const page = await events.listConversationEvents({ conversationId, pageSize, pageToken });
			if (conversationId === "") eventSequences = [...eventSequences, ...page.events.map(({ sequence }) => sequence)];
			return { json: object(toJson(ListConversationEventsResponseSchema, page)), next: page.nextPageToken };
		});
		if (conversationId === "") continue;
		await add(`conversation ${conversationId}`, async () =>
			toJson(GetConversationResponseSchema, await reads.getConversation({ id: conversationId })),
		);
	}
	await addPages("conversations", async (pageToken) => {
		const page = await reads.listConversations({ pageSize, pageToken, orderBy });
		return { json: object(toJson(ListConversationsResponseSchema, page)), next: page.nextPageToken };
	});
	const filter = { owner: `${CANARY}-owner`, sender: `${CANARY}-blue` };
	await add("conversations of others", async () =>
		toJson(ListConversationsResponseSchema, await reads.listConversations({ filter })),
	);
	await add("counts", async () =>
		toJson(CountConversationsResponseSchema, await reports.countConversations({ groupBy })),
	);
	for (const group of [[], ["model", "owner"], ["root", "sender"], ["conversation"]])
		await add(`usage by ${group}`, async () =>
			toJson(ReportUsageResponseSchema, await reports.reportUsage({ groupBy: group })),
		);
	await add("senders", async () =>
		toJson(ListSendersResponseSchema, await clientOf(ConversationSenderService, from, protocol, RED).listSenders({})),
	);
	await add("a token of another list", async () =>
		toJson(ListConversationsResponseSchema, await reads.listConversations({ pageToken: "bm90IGEgdG9rZW4" })),
	);

	const resume = (known: readonly bigint[]) => known[Math.min(resumed, known.length) - 1] ?? 0n;
	for (const value of [0n, resume(sequences), 2n ** 40n])
		for (const conversationId of ["", ids[0] ?? ""]) {
			const start = { case: "afterSequence", value } as const;
			await add(`watch of updates ${conversationId} after ${value === 0n ? 0 : value < 2n ** 40n}`, () =>
				untilCaughtUp(
					(options) => reads.watchConversationUpdates({ start, conversationId }, options),
					({ content }) =>
						content.case === "update" ? [content.value.conversationId, content.value.summary?.title ?? ""] : undefined,
				),
			);
		}
	const start = { case: "afterSequence", value: resume(eventSequences) } as const;
	await add("watch of events", () =>
		untilCaughtUp(
			(options) => events.watchConversationEvents({ start }, options),
			({ content }) =>
				content.case === "event" ? [content.value.conversationId, content.value.event?.id ?? ""] : undefined,
		),
	);

	const get = async (path: string): Promise<JsonObject> => {
		const response = await fetch(`${from.http}/api/v1/${path}`, { headers: { "X-Access-Token": RED } });
		const body: JsonValue = JSON.parse(await response.text());
		return { status: response.status, body };
	};
	const order = ["updated", "activity", "created", "cost", "tokens", "updated"][orderBy];
	await addPages("JSON conversations", async (token) => {
		const json = await get(`conversations?page_size=${pageSize}&order_by=${order}&page_token=${token}&view=full`);
		return { json, next: String(object(json.body ?? {}).next_page_token ?? "") };
	});
	for (const id of ids) {
		await add(`JSON conversation ${id}`, () => get(`conversations/${id}`));
		await add(`JSON events of ${id}`, () => get(`conversations/${id}/events?order=newest_first`));
	}
	await add("JSON counts", () => get(`conversations/counts?group_by=${groupBy}`));
	await add("JSON senders", () => get("senders"));
	await add("JSON usage", () => get("usage?group_by=conversation&group_by=owner"));
	await add("JSON conversations of others", () => get(`conversations?owner=${CANARY}-owner`));
	return answers;
}

test("an owner is answered what a service with its data alone would answer, on every transport", async () => {
	await fc.assert(
		fc.asyncProperty(operations, asked, async (list, ask) => {
			await using shared = await startTestService({ ACCESS_KEYS, DRAIN_SECONDS: "1" });
			await using alone = await startTestService({ ACCESS_KEYS, DRAIN_SECONDS: "1" });
			const ids = Array.from({ length: 4 }, () => randomUUID());
			const parents = ids.map((_, n) => ids[n - 1] ?? randomUUID());
			const owners = new Map<number, string | undefined>();
			for (const [n, operation] of list.entries()) {
				const { by, conversation, kind } = operation;
				const { owner } = KEYS[by] ?? { owner: undefined };
				const [id = "", parent = ""] = [ids[conversation], parents[conversation]];
				const isForeign = owners.has(conversation) && owner !== undefined && owners.get(conversation) !== owner;
				const isReds = (owners.has(conversation) ? owners.get(conversation) : owner) === "red";
				const answer = await post(shared, operation, id, parent, n, isReds);
				if (isForeign) {
					expect(answer).toEqual({ status: 403, text: expect.stringContaining(REFUSED) });
					continue;
				}
				const isStored = answer.status === 200;
				expect(isStored).toBe(!kind.startsWith("invalid"));
				if (by.startsWith("red") || (isReds && isStored))
					expect(answer).toEqual(await post(alone, operation, id, parent, n, isReds));
				if (isStored && !owners.has(conversation)) owners.set(conversation, owner);
			}
			const asking = [...ids, randomUUID()];
			const [own, others] = [await seen(alone, asking, ask), await seen(shared, asking, ask)];
			expect(comparable(others)).toEqual(comparable(own));
			expect(JSON.stringify(Object.values(others))).not.toContain(CANARY);
		}),
		{ numRuns: 3, endOnFailure: true },
	);
});
