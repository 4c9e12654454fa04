import { CLOCK } from "../../src/forward/endpoint-worker.ts";
import { Endpoints } from "../../src/forward/endpoints.ts";
import { EndpointSecrets } from "../../src/forward/secrets.ts";
import { SealedBytes } from "../../src/record/secrets/cipher.ts";
import type { Store } from "../../src/store/store.ts";

/** Returns endpoints of a store to which nothing is sent. */
export function testEndpoints(store: Store): Endpoints {
	return new Endpoints({
		...{ store, clock: CLOCK, linkOf: () => undefined, onChanged: () => undefined },
		secrets: new EndpointSecrets(new SealedBytes([])),
		sink: {
			refusalOf: () => undefined,
			denialOf: () => undefined,
			send: () => Promise.reject(new Error("nothing is sent")),
		},
	});
}
