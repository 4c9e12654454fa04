import { type AccessKeys, COMMAND, type ListedKey } from "./access/access-keys.ts";
import { microseconds } from "./access/stored-keys.ts";
import type { Config, TracesConfig } from "./config/config.ts";
import type { ConversationReads } from "./conversations/conversation-reads.ts";
import { CLOCK } from "./forward/endpoint-worker.ts";
import { Endpoints, tellWith } from "./forward/endpoints.ts";
import type { EndpointFigures, Forwarder, ForwarderOptions } from "./forward/forwarder.ts";
import { HttpSink } from "./forward/http-sink.ts";
import { type GapNoticesOptions, Notices } from "./forward/notices.ts";
import { EndpointSecrets } from "./forward/secrets.ts";
import { KafkaSink, NatsSink, Sinks } from "./forward/sinks.ts";
import { packageJson } from "./package-json.ts";
import { Reconciler, type ReconcilerOptions } from "./reconcile/reconciler.ts";
import { SealedBytes } from "./record/secrets/cipher.ts";
import type { Store } from "./store/store.ts";
import type { Logger } from "./telemetry/log.ts";
import { TRACES_FORM } from "./traces/follow.ts";
import { TraceSender } from "./traces/trace-sender.ts";

/** What forwards. */
export interface Forwarding {
	readonly endpoints: Endpoints;
	readonly options: ForwarderOptions;
	/** Tells endpoints what has no update. */
	readonly notices: Notices;
	readonly gaps: GapNoticesOptions;
	readonly sink: AsyncDisposable;
	/** Sends traces, also to addresses inside, because only the configuration names it. */
	readonly tracesSink: HttpSink;
	/** Returns the figures of the attached forwarder; none before. */
	figures(): Promise<readonly EndpointFigures[]>;
	/** Lets changes of endpoints take effect at once in this process. */
	attach(forwarder: Pick<Forwarder, "poke" | "figures">): void;
}

const USER_AGENT = `${packageJson().name}/${packageJson().version}`;

/**
 * Makes what callers do with endpoints by a configuration, and what it shares with a forwarder.
 *
 * @param onChange is called when endpoints or deliveries have changed
 */
export function endpointsOf(
	{ encryptionKeys, forwardPrivate, forwardNats, forwardKafka, consoleUrl }: Config,
	store: Store,
	log: Pick<Logger, "endpointChanged">,
	onChange: () => void,
) {
	const http = new HttpSink({ allowsInside: forwardPrivate, userAgent: USER_AGENT });
	const sink = new Sinks(http, {
		...(forwardNats === undefined ? {} : { "nats:": new NatsSink(forwardNats) }),
		...(forwardKafka === undefined ? {} : { "kafka:": new KafkaSink(forwardKafka) }),
	});
	const secrets = new EndpointSecrets(new SealedBytes(encryptionKeys));
	const linkOf = (conversationId: string) =>
		consoleUrl === undefined || conversationId === "" ? undefined : `${consoleUrl}#/conversations/${conversationId}`;
	const shared = { store, secrets, sink, clock: CLOCK, linkOf };
	const endpoints = new Endpoints({
		...shared,
		onChanged: (action, caller, endpoint) => {
			log.endpointChanged(endpoint, caller.owner ?? "", action, caller.name);
			onChange();
		},
	});
	return { endpoints, shared };
}

/** Makes what forwards by a configuration. */
export function forwardingOf(
	config: Config,
	store: Store,
	reads: Pick<ConversationReads, "of">,
	log: Pick<Logger, "endpointChanged" | "endpointDisabled" | "workFailed">,
): Forwarding {
	let attached: Pick<Forwarder, "poke" | "figures"> | undefined;
	const onChange = () => attached?.poke();
	const onError = (error: unknown) => log.workFailed("forwarding", error);
	const { endpoints, shared } = endpointsOf(config, store, log, onChange);
	const sender = packageJson();
	const tracesSink = new HttpSink({ allowsInside: true, userAgent: USER_AGENT });
	const traceSender = ({ headers, ...settings }: TracesConfig) => {
		const texts = [...headers].map(([name, value]) => [name, value.export().toString()] as const);
		const to = { ...settings, headers: Object.fromEntries(texts), sink: tracesSink, clock: CLOCK };
		return new TraceSender({ ...to, store, reads: reads.of({ owner: undefined }), sender });
	};
	const notices = new Notices({ store, clock: CLOCK, onChange });
	return {
		endpoints,
		options: {
			...shared,
			random: Math.random,
			ownForms: config.traces && new Map([[TRACES_FORM, traceSender(config.traces)]]),
			tell: tellWith(store, reads),
			onDisabled: (endpoint, reason) => log.endpointDisabled(endpoint.name, endpoint.owner, reason),
			onError,
		},
		notices,
		gaps: { store, notices, clock: CLOCK, onError },
		sink: shared.sink,
		tracesSink,
		figures: async () => (await attached?.figures()) ?? [],
		attach: (forwarder) => {
			attached = forwarder;
		},
	};
}

/** Makes the reconciler of a configuration, for the service and for a command. */
export function reconcilerOf(
	{ eventTimeZone, senderTimeZones, maxBodyBytes }: Config,
	accessKeys: Pick<AccessKeys, "list">,
	options: Omit<ReconcilerOptions, "timeZoneOf" | "posters" | "client">,
): Reconciler {
	return new Reconciler({
		...options,
		timeZoneOf: (sender) => senderTimeZones.get(sender) ?? eventTimeZone,
		posters: () =>
			accessKeys
				.list(COMMAND)
				.filter((key) => [...key.scopes].includes("ingest"))
				.map((key) => ({ name: key.name, owner: key.owner || undefined, hasEnded: hasEnded(key) })),
		client: { maxBytes: maxBodyBytes },
	});
}

function hasEnded(key: ListedKey): boolean {
	if (key.configured) return false;
	const { revokedAt, expiresAt } = key;
	return revokedAt !== undefined || (expiresAt !== undefined && expiresAt <= microseconds(Date.now()));
}
