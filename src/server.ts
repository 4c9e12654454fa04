import { Gate } from "./access/gate.ts";
import { firstKey } from "./access/first-key.ts";
import { Keyring, type KeyEntry } from "./access/keys.ts";
import { type Address, type Config, describeConfig, formatAddress } from "./config.ts";
import { Ingest } from "./conversations/ingest.ts";
import { RecordVault } from "./conversations/vault.ts";
import { RecordFormat } from "./record/record.ts";
import { registerServices, SERVICES, type ServiceRegistrar } from "./rpc/services.ts";
import { openSqliteStore } from "./store/sqlite/sqlite.ts";
import type { Log } from "./telemetry/log.ts";
import { createConnectListener } from "./transports/connect/connect.ts";
import { listenGrpc } from "./transports/grpc/listener.ts";
import { listenHttp } from "./transports/http/listener.ts";
import { createRouter } from "./transports/http/router.ts";
//import { openApiRoute } from "./transports/webhook/openapi.ts";
import { webhookRoute } from "./transports/webhook/webhook.ts";

/** How long requests under way may take to finish after the service was told to stop. */
const DRAIN_MILLISECONDS = 25_000;

/** A service that accepts requests. */
export interface RunningService {
	readonly httpAddress: Address;
	readonly grpcAddress: Address;
	/** The access key that this start made, to be shown once; undefined on every other start. */
	readonly firstKey: string | undefined;
	/** Stops accepting, lets requests under way finish and commit, and closes the store. */
	stop(): Promise<void>;
}

/**
 * Builds the service and starts it.
 *
 * @throws Error when a listener or the store cannot be opened
 */
export async function startService(config: Config, log: Log): Promise<RunningService> {
	log.starting(describeConfig(config));
	const store = await openSqliteStore(config.database.path, { error: (fields: object) => log.storeFailed("err" in fields ? fields.err : fields), warn: () => {}, info: () => {} });
	const { entries, plain } = await accessKeys(config);
	const gate = new Gate(new Keyring(entries), SERVICES);
	const format = new RecordFormat(config.jsonAliases);
	const ingest = new Ingest(store, new RecordVault(format.plan));

	const stopping = new AbortController();
	const { maxBodyBytes, basePath } = config;
	const register = (registrar: ServiceRegistrar): void => registerServices(registrar, { format, ingest, log });
	const rpc = { services: SERVICES, register, gate, maxBodyBytes, stopping: stopping.signal };
	const routes = [webhookRoute(basePath, maxBodyBytes, format, ingest)];
	const http = await listenHttp(config.httpAddress, createConnectListener(rpc, createRouter(routes, gate, log, "webhook")));
	log.listening("http", formatAddress(http.address));
	const grpc = await listenGrpc({ ...rpc, address: config.grpcAddress, log });
	log.listening("grpc", formatAddress(grpc.address));

	return {
		httpAddress: http.address,
		grpcAddress: grpc.address,
		firstKey: plain,
		stop: async () => {
			const overdue = setTimeout(() => {
				http.kill();
				grpc.kill();
			}, DRAIN_MILLISECONDS);
			// Unary calls may finish; streams have no end of their own.
			stopping.abort();
			await Promise.all([http.stop(), grpc.stop()]);
			clearTimeout(overdue);
			await store.close();
			log.stopped();
		},
	};
}

async function accessKeys(config: Config): Promise<{ entries: readonly KeyEntry[]; plain: string | undefined }> {
	if (config.accessKeys.length > 0) return { entries: config.accessKeys, plain: undefined };
	const { entry, plain } = await firstKey(config.database.path);
	return { entries: [entry], plain };
}
