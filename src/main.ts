import { type Config, ConfigError, formatAddress, readConfig } from "./config.ts";
import { startService } from "./server.ts";
import { createLogger } from "./telemetry/log.ts";
import { WEBHOOK_PATH } from "./transports/webhook/webhook.ts";

async function main(): Promise<void> {
	const config = readConfig(process.env);
	const log = createLogger(config.logLevel);
	const signalled = firstSignal();
	const service = await startService(config, log, (key) => showFirstKey(key, config));
	log.stopping(await signalled);
	// The last resort, for what does not let itself be stopped. What was acknowledged is on disk.
	setTimeout(() => {
		log.unexpectedError("stop", new Error("The service has not stopped in time"));
		process.exit(1);
	}, config.drainSeconds * 1000);
	await service.stop().catch((error: unknown) => {
		log.unexpectedError("stop", error);
		process.exit(1);
	});
	process.exit(0);
}

/** How long after the first signal another one is taken for the same: `npm start` passes Ctrl-C on a second time. */
const SAME_SIGNAL_MILLISECONDS = 500;

/** The first signal to stop, also when it comes during the start. A later one ends the process at once. */
function firstSignal(): Promise<NodeJS.Signals> {
	const { promise, resolve } = Promise.withResolvers<NodeJS.Signals>();
	let first: number | undefined;
	for (const name of ["SIGTERM", "SIGINT"] as const)
		process.on(name, () => {
			first ??= performance.now();
			if (performance.now() - first > SAME_SIGNAL_MILLISECONDS) process.exit(1);
			resolve(name);
		});
	return promise;
}

/** Shows the key this once: the service keeps only its hash. */
function showFirstKey(key: string, { httpAddress, basePath }: Config): void {
	const url = `http://${formatAddress(httpAddress)}${basePath}${WEBHOOK_PATH}`;
	process.stderr.write(`
No ACCESS_KEYS are configured, so this start made an access key. It is shown only now:

  ${key}

Try it:

  curl -sS ${url} -H 'X-Access-Token: ${key}' -H 'Content-Type: application/json' \\
    -d '{"id":"7c9e6679-7425-40de-944b-e07fc1f90ae7","workspace":{"kind":"LocalWorkspace","working_dir":"/workspace"},"agent":{"kind":"ACPAgent","acp_command":["acp"]}}'

`);
}

/** What went wrong and why, in one line. */
function reasonOf(error: unknown): string {
	if (!(error instanceof Error)) return String(error);
	return error.cause === undefined ? error.message : `${error.message}: ${reasonOf(error.cause)}`;
}

try {
	await main();
} catch (error) {
	const text = error instanceof ConfigError ? error.message : `The service cannot start: ${reasonOf(error)}`;
	process.stderr.write(`${text}\n`);
	process.exit(1);
}
