import { Gate } from "../../../src/access/gate.ts";
import { Keyring } from "../../../src/access/keys.ts";
import { SERVICES } from "../../../src/rpc/services.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { listenGrpc } from "../../../src/transports/grpc/grpc-listener.ts";
import { LIMITS, type Limits } from "../../../src/transports/limits.ts";
import { unseenRequests } from "../../support/requests.ts";

/** A gRPC listener on a free port without methods, for what needs none: health and limits. */
export function listenBare(limits: Partial<Limits> = {}) {
	return listenGrpc({
		address: { host: "127.0.0.1", port: 0 },
		tls: undefined,
		services: SERVICES,
		methods: [],
		gate: new Gate(new Keyring([]), SERVICES),
		maxBodyBytes: 1024,
		stopping: new AbortController().signal,
		requests: unseenRequests(),
		log: createLogger("silent"),
		limits: { ...LIMITS, ...limits },
	});
}
