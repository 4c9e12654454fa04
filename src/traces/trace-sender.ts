import { createHash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { LRUCache } from "lru-cache";
import { ConversationExecutionStatus as Status } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationFilterSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Score } from "../../gen/conversations/v1/score_service_pb.js";
import { type Reads, redactedEvents, redactedRecord, scoresIn } from "../conversations/conversation-reads.ts";
import type { Clock, OwnForm } from "../forward/endpoint-worker.ts";
import type { Answer, HttpSink } from "../forward/http-sink.ts";
import { summaryOf } from "../forward/tell.ts";
import { memberOf } from "../record/json/json-value.ts";
import type { StoredUpdate } from "../store/entries.ts";
import type { DeliveryRow } from "../store/forwarding.ts";
import type { Store } from "../store/store.ts";
import { Facts } from "./facts.ts";
import { OTLP_TYPE, otlpRequests } from "./otlp.ts";
import type { Run } from "./runs.ts";
import { type RunTrace, type TraceSource, tracesOf, withRuns } from "./spans.ts";

interface TraceSenderOptions {
	readonly url: string;
	readonly headers: Readonly<Record<string, string>>;
	readonly content: boolean;
	/**
	 * Milliseconds between an update and the sending of its run. An agent server holds back events for some time, those of
	 * the conversation that began the run, too.
	 */
	readonly delay: number;
	readonly store: Pick<Store, "updates">;
	/** What is sent, of all owners. */
	readonly reads: Pick<Reads, "get" | "list" | "events" | "gaps" | "scores">;
	readonly sink: Pick<HttpSink, "send">;
	readonly clock: Pick<Clock, "now">;
	readonly sender: { readonly name: string; readonly version: string };
}

/** Microseconds before an update in which the end of its run may have arrived: not with the same post, but about then. */
const TOGETHER = 90_000_000n;
/** Multiple of the delay after which a run whose end has not arrived is sent without it. */
const LATEST = 2;
const MAX_KNOWN = 10_000;
const MAX_GAPS = 1_000;

/** Statuses of conversations whose agent works, and those in which it may not have begun. */
const ACTIVE: ReadonlySet<Status> = new Set([Status.RUNNING, Status.WAITING_FOR_CONFIRMATION]);
const OPEN: ReadonlySet<Status> = new Set([...ACTIVE, Status.IDLE, Status.UNSPECIFIED]);

interface Known {
	readonly digest: string;
	readonly delivery: string;
}

/** Returns the form that sends the runs of conversations to an OTLP receiver. */
export function traceForm(options: TraceSenderOptions): OwnForm {
	const { delay, store, reads, url, headers, content, sink, sender, clock } = options;
	const sentBefore = new LRUCache<string, Known>({ max: MAX_KNOWN });
	return { delay, wants, deliver };

	/** A run can begin and end in one post, which changes no status. */
	function wants(update: StoredUpdate): boolean {
		const summary = summaryOf(update);
		return summary !== undefined && !ACTIVE.has(summary.executionStatus);
	}

	/** Sends the runs that ended with an update or after it, and were not sent already for another update. */
	async function deliver(
		{ id, sequence, conversationId }: DeliveryRow,
		signal: AbortSignal,
	): Promise<Answer | undefined> {
		if (sequence === undefined) return undefined;
		const [update] = await store.updates.list({ after: sequence - 1n, limit: 1, withRecords: false });
		if (update?.sequence !== sequence || update.conversationId !== conversationId) return undefined;
		const source = await sourceOf(conversationId, new Set());
		if (source === undefined) return undefined;
		const traces = tracesOf(source);
		const last = traces.at(-1)?.run;
		const isOpen = last !== undefined && last.status === undefined;
		const hasEnded = isOpen && !OPEN.has(source.summary.executionStatus);
		const latest = update.receivedAt + BigInt(LATEST * delay) * 1000n;
		if (hasEnded && BigInt(clock.now()) * 1000n < latest) return TOO_EARLY;
		const isMeant = ({ status, completedAt }: Run) =>
			status === undefined ? hasEnded : completedAt >= update.receivedAt - TOGETHER;
		for (const trace of traces.filter(({ run }) => isMeant(run))) {
			const [key, digest] = [trace.spans[0]?.spanId ?? "", digestOf(trace)];
			const known = sentBefore.get(key);
			if (known?.digest === digest && known.delivery !== id) continue;
			for (const body of await otlpRequests(trace.spans, sender)) {
				const answer = await sink.send(url, { contentType: OTLP_TYPE, body }, headers, signal);
				if (answer.error !== "") return answer;
			}
			sentBefore.set(key, { digest, delivery: id });
		}
		return SENT;
	}

	/** Reads a conversation, with those that began it; undefined when it is not stored. */
	async function sourceOf(id: string, below: Set<string>): Promise<TraceSource | undefined> {
		const filter = create(ConversationFilterSchema, { ids: [id] });
		const page = await reads.list.list({ filter, pageSize: 1, pageToken: "", full: false, secrets: "redacted" });
		const summary = page.conversations[0]?.summary;
		if (summary === undefined) return undefined;
		const { gaps } = await reads.gaps.list({ conversationId: id, pageSize: MAX_GAPS, pageToken: "" });
		const facts = new Facts(content && below.size === 0, new Set(gaps.map(({ afterEventId }) => afterEventId)));
		const record = await redactedRecord(reads, id);
		facts.addStats(memberOf(record, "stats"));
		for await (const event of redactedEvents(reads, id)) facts.add(event);
		const scores: Score[] = [];
		// Only the runs of this conversation are sent.
		for await (const score of below.size === 0 ? scoresIn(reads, id) : [])
			scores.push(content ? score : { ...score, comment: "" });
		below.add(id);
		const { parentConversationId: parent } = summary;
		// A conversation can name any other as its parent, also one that it began.
		const above = parent === undefined || below.has(parent) ? undefined : await sourceOf(parent, below);
		return withRuns({ summary, record, facts, scores, parent: above });
	}
}

const SENT: Answer = { status: 200, error: "", answer: "", retryAfter: undefined };

/** An answer that concerns one delivery only (RFC 8470, section 5.2). */
const TOO_EARLY: Answer = { ...SENT, status: 425, error: "the end of the run has not arrived yet" };

function digestOf({ spans }: RunTrace): string {
	const text = JSON.stringify(spans, (_, value) => (typeof value === "bigint" ? String(value) : value));
	return createHash("sha256").update(text).digest("hex");
}
