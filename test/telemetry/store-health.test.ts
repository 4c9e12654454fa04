import { expect, test } from "vitest";
import { Gate } from "../../src/access/gate.ts";
import { Keyring } from "../../src/access/keys.ts";
import type { EventLog } from "../../src/telemetry/log.ts";
import { followStoreHealth, Readiness } from "../../src/telemetry/readiness.ts";
import { Admission } from "../../src/transports/admission.ts";
import { observed } from "../../src/transports/http/exchange.ts";
import { listenHttp } from "../../src/transports/http/http-listener.ts";
import { createRouter } from "../../src/transports/http/router.ts";
import { probeRoutes } from "../../src/transports/http/service-routes.ts";
import { unobservedRequests } from "../support/requests.ts";
import { silentLog } from "../support/silent-log.ts";

test("each change of the store's health is reported and logged once", async () => {
	const outcomes: (Error | undefined)[] = [undefined, new Error("full"), new Error("full"), undefined, undefined];
	const changes: boolean[] = [];
	const logged: unknown[] = [];
	const { promise: done, resolve } = Promise.withResolvers<void>();
	const store = {
		check: async () => {
			if (outcomes.length === 0) resolve();
			const failure = outcomes.shift();
			if (failure !== undefined) throw failure;
		},
	};
	const log: EventLog = { emit: (...line) => logged.push(line) };
	using _ = followStoreHealth(store, { onChange: (healthy) => changes.push(healthy), log, interval: 1 });
	await done;
	expect(changes).toEqual([false, true]);
	expect(logged).toEqual([
		["store_unhealthy", {}, new Error("full")],
		["store_healthy", {}, undefined],
	]);
});

test("no check begins while another one is under way", async () => {
	let checks = 0;
	const { promise: started, resolve } = Promise.withResolvers<void>();
	const { promise: check, resolve: finish } = Promise.withResolvers<void>();
	const store = {
		check: () => {
			checks += 1;
			resolve();
			return check;
		},
	};
	{
		using _ = followStoreHealth(store, {
			onChange: () => undefined,
			log: silentLog(),
			interval: 1,
		});
		await started;
		for (let turn = 0; turn < 20; turn++) await new Promise((next) => setTimeout(next, 1));
	}
	finish();
	expect(checks).toBe(1);
});

test("/readyz returns 503 while a check of the store hangs, and 200 when it has ended", async () => {
	const stalled = Promise.withResolvers<void>();
	let checks = 0;
	const store = {
		check: async () => {
			checks += 1;
			if (checks === 2) await stalled.promise;
		},
	};
	const logged: unknown[] = [];
	const readiness = new Readiness(() => undefined);
	using _ = followStoreHealth(store, {
		onChange: (healthy) => readiness.set("store", healthy),
		log: { emit: (...line) => logged.push(line) },
		interval: 1,
		timeout: 50,
	});
	const answer = createRouter({
		routes: probeRoutes(readiness),
		gate: new Gate(new Keyring([]), []),
		admission: new Admission(1_000),
	});
	const address = { host: "127.0.0.1", port: 0 };
	const listener = await listenHttp(
		{ address, tls: undefined, log: silentLog() },
		observed(unobservedRequests(), answer),
	);
	const ready = async () => {
		const response = await fetch(`http://127.0.0.1:${listener.address.port}/readyz`);
		return [response.status, await response.json()];
	};
	const notReady = { ready: false, failing: [{ check: "store", since: expect.any(String) }] };
	await expect.poll(ready).toEqual([503, notReady]);
	expect([checks, logged]).toEqual([2, [["store_unhealthy", {}, new Error("The check has not ended in 50 ms")]]]);
	stalled.resolve();
	await expect.poll(ready).toEqual([200, { ready: true, failing: [] }]);
	expect(logged.slice(1)).toEqual([["store_healthy", {}, undefined]]);
	listener.kill();
});
