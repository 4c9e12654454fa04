import { timestampNow } from "@bufbuild/protobuf/wkt";
import { AccessKeys, COMMAND, hasEnded, REFRESH_INTERVAL } from "./access/access-keys.ts";
import { Budgets } from "./budgets/budgets.ts";
import { budgetShares } from "./budgets/shown.ts";
import type { Config, TracesConfig } from "./config/config.ts";
import { ConversationReads } from "./conversations/conversation-reads.ts";
import { eventIngestOf } from "./conversations/ingest/event-ingest.ts";
import { ingestOf } from "./conversations/ingest/ingest.ts";
import { acceptingEvents, kindOf, RefusedPosts } from "./conversations/refused/refused-posts.ts";
import { ClockSkews, PostCounts } from "./conversations/senders.ts";
import { ServiceError } from "./errors.ts";
import { EventFormat } from "./events/event-format.ts";
import { CLOCK, type WorkerOptions } from "./forward/endpoint-worker.ts";
import { Endpoints } from "./forward/endpoints.ts";
import { HttpSink } from "./forward/http-sink.ts";
import { noticesOf } from "./forward/notices.ts";
import { tellingScores } from "./forward/scored.ts";
import { EndpointSecrets } from "./forward/secrets.ts";
import { kafkaBroker, natsBroker, Sinks } from "./forward/sinks.ts";
import { tell } from "./forward/tell.ts";
import { SharedIntake } from "./intake/intake.ts";
import { recordIntake } from "./intake/record-intake.ts";
import { packageJson } from "./package-json.ts";
import { Reconciler, type ReconcilerOptions } from "./reconcile/reconciler.ts";
import { RecordFormat } from "./record/record-format.ts";
import { SealedBytes } from "./record/secrets/cipher.ts";
import { RecordVault } from "./record/secrets/record-vault.ts";
import { commandMethods } from "./rpc/command-methods.ts";
import { type DescribeService, rpcMethods } from "./rpc/services.ts";
import { TextIndexer } from "./search/indexer.ts";
import { openStore } from "./store/open.ts";
import type { Store } from "./store/store.ts";
import { brokenRules, type EventLog, type Logger } from "./telemetry/log.ts";
import { countedStore, type Telemetry } from "./telemetry/telemetry.ts";
import type { ThreadLogger } from "./threads/worker-thread.ts";
import { TRACES_FORM } from "./traces/otlp.ts";
import { traceForm } from "./traces/trace-sender.ts";
import { Admission } from "./transports/admission.ts";
import { postRoutes } from "./transports/webhook/webhook.ts";

interface PartsOptions {
	readonly log: Logger;
	/** Disposes of the parts when the process ends its work. */
	readonly opened: AsyncDisposableStack;
	/** Observes threads and counts what is stored. Commands have none. */
	readonly telemetry?: Pick<Telemetry, "threads" | "metrics" | "tracing">;
	/** Whether to spread the tables of the database over the servers of Citus. */
	readonly distribute?: boolean;
	readonly storeHealthy?: () => boolean;
}

export type Parts = Awaited<ReturnType<typeof makeParts>>;

/**
 * Opens the store, and makes everything that a configuration says what to do with it: the RPCs, and the parts of which
 * they are made. The service and the commands that find no running service have the same.
 */
export async function makeParts(config: Config, options: PartsOptions) {
	const { log, opened, telemetry, distribute = false, storeHealthy = () => true } = options;
	const { ENCRYPTION_KEY: encryptionKeys, EVENT_TIME_ZONE: eventTimeZone, SENDER_TIME_ZONES: senderTimeZones } = config;
	const format = new RecordFormat();
	const vault = new RecordVault(format, encryptionKeys);
	const eventFormat = new EventFormat(format, encryptionKeys, eventTimeZone, senderTimeZones);
	const admission = new Admission(config.MAX_INFLIGHT_BYTES);
	const observer = telemetry?.threads;
	const intake = opened.use(
		new SharedIntake({
			here: recordIntake(format, vault, eventFormat),
			underWay: () => admission.underWay("ingest").requests,
			data: { encryptionKeys, eventTimeZone, senderTimeZones },
			log: threadLog(log, "intake_failed"),
			observer,
		}),
	);
	const plainStore = opened.use(
		await openStore(config.database, threadLog(log, "store_failed"), {
			...{ observer, distribute },
			isSameRecord: (stored, arriving) => intake.isSame({ stored, arriving }),
		}),
	);
	const postCounts = opened.use(new PostCounts(plainStore, (error) => log.workFailed("refusals", error)));
	const store =
		telemetry === undefined
			? plainStore
			: countedStore(plainStore, telemetry, (poster, at) => postCounts.addRepeat(poster, at));
	const onRefusedError = (error: unknown) => log.workFailed("refused posts", error);
	const refusedPosts = opened.use(
		new RefusedPosts(store, { keys: encryptionKeys, maxBytes: config.REFUSED_BYTES, onError: onRefusedError }),
	);
	const refreshInterval = config.database.engine === "postgres" ? REFRESH_INTERVAL : undefined;
	const keyOptions = { configured: config.ACCESS_KEYS, certificates: config.CLIENT_CERTIFICATES, log, refreshInterval };
	const accessKeys = opened.use(await AccessKeys.open(store, keyOptions));
	const stopping = new AbortController();
	const clocks = new ClockSkews((sender, skew) =>
		log.emit("sender_clock_wrong", { sender, minutes: Number(skew / 60_000_000n) }),
	);
	const indexer = new TextIndexer({ store, format: eventFormat });
	const eventIngest = eventIngestOf(store, intake, log, { clocks, indexer });
	const ingest = ingestOf(store, intake, eventIngest);
	const accepting = acceptingEvents(eventIngest, refusedPosts, {
		routes: postRoutes(config.BASE_PATH),
		onAccepted: ({ poster, conversationId, error }) => {
			postCounts.add(poster, kindOf(error));
			const violations = error instanceof ServiceError ? error.violations : [];
			const fields = { caller: poster.sender, conversationId, ...brokenRules(violations, "body") };
			log.emit("refused_batch_accepted", fields);
		},
		onError: onRefusedError,
	});
	const eventPosts = config.ACCEPT_REFUSED ? accepting : eventIngest;
	/** What is called when callers have changed endpoints, or what these deliver. */
	const changed = { endpoints: () => {} };
	const onChange = () => changed.endpoints();
	const notices = noticesOf({ store, clock: CLOCK, onChange });
	const reads = new ConversationReads({
		store: tellingScores(store, { notices, onChange }),
		format,
		vault,
		events: eventFormat,
		watches: { stopping: stopping.signal },
		clocks,
		refused: refusedPosts,
		onUnreadable: ({ error, ...record }) => log.emit("record_unreadable", record, error),
		onUnreadableEvent: ({ error, ...event }) => log.emit("event_unreadable", event, error),
		onErased: (digest, caller) => log.emit("conversation_erased", { digest, caller }),
	});
	const forwarding = { ...forwardingOf(config, store, { reads, log, onChange }), notices };
	opened.use(forwarding.sink);
	opened.use(forwarding.tracesSink);
	const shares = budgetShares(store, reads, Date.now);
	const methods = rpcMethods({
		...{ ingest, eventIngest: eventPosts, reads, accessKeys, store, log, endpoints: forwarding.endpoints },
		retries: { store, kept: refusedPosts, records: ingest, events: eventIngest },
		budgets: new Budgets({ store, now: Date.now }),
		info: serviceInfo(config, storeHealthy),
	});
	const reconciler = reconcilerOf(config, accessKeys, { store, ingest, eventIngest, log, stopping: stopping.signal });
	// Before anything else is disposed of.
	opened.defer(() => stopping.abort());
	return {
		...{ format, admission, store, postCounts, refusedPosts, accessKeys, stopping },
		...{ ingest, eventIngest, eventPosts, indexer, reads, changed, forwarding, shares, reconciler, methods },
		commandMethods: [...methods, ...commandMethods(reconciler, store)],
	};
}

function forwardingOf(
	config: Config,
	store: Store,
	{ reads, log, onChange }: { readonly reads: ConversationReads; readonly log: Logger; readonly onChange: () => void },
) {
	const { forwardNats, forwardKafka, consoleUrl } = config;
	const sender = packageJson();
	const userAgent = `${sender.name}/${sender.version}`;
	const sink = new Sinks(new HttpSink({ allowsInside: config.FORWARD_PRIVATE, userAgent }), {
		...(forwardNats === undefined ? {} : { "nats:": natsBroker(forwardNats) }),
		...(forwardKafka === undefined ? {} : { "kafka:": kafkaBroker(forwardKafka) }),
	});
	const secrets = new EndpointSecrets(new SealedBytes(config.ENCRYPTION_KEY));
	const linkOf = (conversationId: string) =>
		consoleUrl === undefined || conversationId === "" ? undefined : `${consoleUrl}#/conversations/${conversationId}`;
	const shared = { store, secrets, sink, clock: CLOCK, linkOf };
	const endpoints = new Endpoints({
		...shared,
		onChanged: (action, caller, endpoint) => {
			log.emit("endpoint_changed", { name: endpoint, owner: caller.owner ?? "", action, caller: caller.name });
			onChange();
		},
	});
	// Also to addresses inside, because only the configuration names it.
	const tracesSink = new HttpSink({ allowsInside: true, userAgent });
	const traceSender = ({ headers, ...settings }: TracesConfig) => {
		const texts = [...headers].map(([name, value]) => [name, value.export().toString()] as const);
		const to = { ...settings, headers: Object.fromEntries(texts), sink: tracesSink, clock: CLOCK };
		return traceForm({ ...to, store, reads: reads.of({ owner: undefined }), sender });
	};
	const forwarderOptions: WorkerOptions = {
		...shared,
		random: Math.random,
		ownForms: config.traces && new Map([[TRACES_FORM, traceSender(config.traces)]]),
		tell: async (endpoint, delivery) =>
			await tell({ store, reads: reads.of({ owner: endpoint.owner || undefined }) }, endpoint, delivery),
		onDisabled: ({ name, owner }, reason) => log.emit("endpoint_disabled", { name, owner, reason }),
		onError: (error) => log.workFailed("forwarding", error),
	};
	return { endpoints, sink, tracesSink, forwarderOptions };
}

function reconcilerOf(
	config: Config,
	accessKeys: AccessKeys,
	options: Omit<ReconcilerOptions, "posters" | "client">,
): Reconciler {
	return new Reconciler({
		...options,
		posters: () =>
			accessKeys
				.list(COMMAND)
				.filter((key) => [...key.scopes].includes("ingest"))
				.map((key) => ({ name: key.name, owner: key.owner || undefined, hasEnded: !key.configured && hasEnded(key) })),
		client: { maxBytes: config.MAX_BODY_BYTES },
	});
}

/** Returns the function that tells a caller about a service that starts now. */
function serviceInfo(config: Config, storeHealthy: () => boolean): DescribeService {
	const facts = {
		version: packageJson().version,
		engine: config.database.engine,
		startedAt: timestampNow(),
		retentionDays: config.RETENTION_DAYS,
		retentionUpdatesPerConversation: config.RETENTION_UPDATES_PER_CONVERSATION,
		eventRetentionDays: config.EVENT_RETENTION_DAYS,
		encryptsSecrets: config.ENCRYPTION_KEY.length > 0,
		basePath: config.BASE_PATH,
		eventTimeZone: config.EVENT_TIME_ZONE,
	};
	return ({ name, scopes, owner = "" }) => ({
		...facts,
		storeHealthy: storeHealthy(),
		caller: name,
		callerScopes: [...scopes],
		callerOwner: owner,
	});
}

function threadLog(log: EventLog, event: "intake_failed" | "store_failed"): ThreadLogger {
	return { error: (fields) => log.emit(event, {}, "err" in fields ? fields.err : fields) };
}
