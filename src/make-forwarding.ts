import type { Audit } from "./access/audit.ts";
import type { Config } from "./config/config.ts";
import type { ConversationReads } from "./conversations/conversation-reads.ts";
import { CLOCK } from "./forward/endpoint-worker.ts";
import { Endpoints, tellWith } from "./forward/endpoints.ts";
import type { EndpointFigures, Forwarder, ForwarderOptions } from "./forward/forwarder.ts";
import type { GapNoticesOptions } from "./forward/gap-notices.ts";
import { HttpSink } from "./forward/http-sink.ts";
import { Notices } from "./forward/notices.ts";
import { EndpointSecrets } from "./forward/secrets.ts";
import { packageJson } from "./package-json.ts";
import { SealedBytes } from "./record/secrets/sealed-bytes.ts";
import type { Store } from "./store/store.ts";
import type { Logger } from "./telemetry/log.ts";

/** What forwards. */
export interface Forwarding {
	readonly endpoints: Endpoints;
	readonly options: ForwarderOptions;
	/** Tells endpoints what has no update. */
	readonly notices: Notices;
	readonly gaps: GapNoticesOptions;
	readonly sink: HttpSink;
	/** Returns the figures of the attached forwarder; none before. */
	figures(): Promise<readonly EndpointFigures[]>;
	/** Lets changes of endpoints take effect at once in this process. */
	attach(forwarder: Pick<Forwarder, "poke" | "figures">): void;
}

/**
 * Makes what callers do with endpoints by a configuration, and what it shares with a forwarder.
 *
 * @param onChange is called when endpoints or deliveries have changed
 */
export function endpointsOf(
	{ encryptionKeys, forwardPrivate, consoleUrl }: Config,
	store: Store,
	log: Pick<Logger, "endpointChanged">,
	audit: Pick<Audit, "add">,
	onChange: () => void,
) {
	const { name, version } = packageJson();
	const sink = new HttpSink({ allowsInside: forwardPrivate, userAgent: `${name}/${version}` });
	const secrets = new EndpointSecrets(new SealedBytes(encryptionKeys));
	const linkOf = (conversationId: string) =>
		consoleUrl === undefined || conversationId === "" ? undefined : `${consoleUrl}#/conversations/${conversationId}`;
	const shared = { store, secrets, sink, clock: CLOCK, linkOf };
	const endpoints = new Endpoints({
		...shared,
		onChange,
		audit: async (action, caller, endpoint, details) => {
			log.endpointChanged(endpoint, caller.owner ?? "", action, caller.name);
			await audit.add(action, caller, endpoint, details);
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
	audit: Pick<Audit, "add">,
): Forwarding {
	let attached: Pick<Forwarder, "poke" | "figures"> | undefined;
	const onChange = () => attached?.poke();
	const onError = (error: unknown) => log.workFailed("forwarding", error);
	const { endpoints, shared } = endpointsOf(config, store, log, audit, onChange);
	const notices = new Notices({ store, clock: CLOCK, onChange });
	return {
		endpoints,
		options: {
			...shared,
			random: Math.random,
			tell: tellWith(store, reads),
			onDisabled: (endpoint, reason) => log.endpointDisabled(endpoint.name, endpoint.owner, reason),
			onError,
		},
		notices,
		gaps: { store, notices, clock: CLOCK, onError },
		sink: shared.sink,
		figures: async () => (await attached?.figures()) ?? [],
		attach: (forwarder) => {
			attached = forwarder;
		},
	};
}
