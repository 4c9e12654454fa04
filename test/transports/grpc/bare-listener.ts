import { Gate } from "../../../src/access/gate.ts";
import { Keyring } from "../../../src/access/keys.ts";
import { SERVICES } from "../../../src/rpc/services.ts";
import { Admission } from "../../../src/transports/admission.ts";
import { LIMITS, type Limits } from "../../../src/transports/connections.ts";
import { listenGrpc } from "../../../src/transports/grpc/grpc-listener.ts";
import { HeldBatches } from "../../../src/transports/stream-messages.ts";
import { unobservedRequests } from "../../support/requests.ts";
import { silentLog } from "../../support/silent-log.ts";

/** Starts a gRPC listener on a free port without methods, for tests that need none, such as of health and limits. */
export function listenBare(limits: Partial<Limits> = {}, admission = new Admission(1024)) {
	return listenGrpc({
		address: { host: "127.0.0.1", port: 0 },
		tls: undefined,
		services: SERVICES,
		methods: [],
		gate: new Gate(new Keyring([]), SERVICES),
		admission,
		held: new HeldBatches(admission),
		maxBodyBytes: 1024,
		stopping: new AbortController().signal,
		requests: unobservedRequests(),
		log: silentLog(),
		limits: { ...LIMITS, ...limits },
	});
}
