import { readConfig } from "../../src/config/config.ts";
import { formatAddress } from "../../src/config/parsers.ts";
import { type RunningService, startService } from "../../src/server.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import type { Endpoints } from "./clients.ts";
import { TempFolder } from "./temp.ts";

/** The access key of test services. */
export const KEY = "test-key-with-every-scope";

/** A service in the test's own process, on free ports, with a database in its own folder. */
export interface TestService extends Endpoints, AsyncDisposable {
	readonly folder: TempFolder;
	/** Path of the database file. */
	readonly database: string;
	/** Returns everything that the service has logged. */
	readonly log: () => string;
	/** Stops the service. Its folder is removed only when the service is disposed of. */
	stop(): Promise<void>;
	/** Stops the service and starts another one on the same database. */
	restart(env?: Readonly<Record<string, string>>): Promise<TestService>;
}

/**
 * Starts a service.
 *
 * @param env variables that override the defaults for tests
 */
export async function startTestService(env: Readonly<Record<string, string>> = {}): Promise<TestService> {
	return await startIn(new TempFolder(), env);
}

async function startIn(folder: TempFolder, env: Readonly<Record<string, string>>): Promise<TestService> {
	const database = folder.file("conversations.db");
	const lines: string[] = [];
	let service: RunningService;
	try {
		// While clients have connections, a stop waits a tenth of it for requests that are on their way.
		const config = readConfig({ ...testEnvironment(database), DRAIN_SECONDS: "2", ...env });
		const log = createLogger(config.LOG_LEVEL, { write: (line) => lines.push(line) }, Number.POSITIVE_INFINITY);
		service = await startService(config, log, () => undefined);
	} catch (error) {
		folder[Symbol.dispose]();
		throw error;
	}
	let stopped: Promise<void> | undefined;
	const stop = (): Promise<void> => {
		stopped ??= service.stop();
		return stopped;
	};
	return {
		http: `http://${formatAddress(service.httpAddress)}`,
		grpc: formatAddress(service.grpcAddress),
		folder,
		database,
		log: () => lines.join(""),
		stop,
		restart: async (next = {}) => {
			await stop();
			return await startIn(folder, { ...env, ...next });
		},
		[Symbol.asyncDispose]: async () => {
			await stop();
			folder[Symbol.dispose]();
		},
	};
}

/** Returns the environment variables of a service on free ports. */
export function testEnvironment(database: string): Record<string, string> {
	return {
		HTTP_ADDRESS: "127.0.0.1:0",
		GRPC_ADDRESS: "127.0.0.1:0",
		DATABASE_URL: `sqlite:${database}`,
		ACCESS_KEYS: `test:${KEY}:ingest+read+secrets`,
		LOG_LEVEL: "info",
	};
}
