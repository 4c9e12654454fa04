import { type Config, ConfigError, formatAddress, readConfig } from "./config.ts";
import { type RunningService, startService } from "./server.ts";
import { createLogger, type Log } from "./telemetry/log.ts";
import { WEBHOOK_PATH } from "./transports/webhook/webhook.ts";

async function main(): Promise<void> {
	const config = readConfig(process.env);
	const log = createLogger(config.logLevel);
	const signal = firstSignal();
	const service = await startService(config, log, (key) => showFirstKey(key, config));
	signal.then((name) => stop(service, log, name));
}

/**
 * The first signal to stop. One that comes during the start is not lost. Those that follow do nothing: Ctrl-C under
 * `npm start` arrives twice, from the terminal and from npm.
 */
function firstSignal(): Promise<NodeJS.Signals> {
	return new Promise((resolve) => {
		process.on("SIGTERM", resolve);
		process.on("SIGINT", resolve);
	});
}

async function stop(service: RunningService, log: Log, signal: string): Promise<void> {
	log.stopping(signal);
	await service.stop();
	process.exit(0);
}

/** The only time that the key is to be seen: the service keeps its hash alone. */
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
	process.stderr.write(
		`${error instanceof ConfigError ? error.message : `The service cannot start: ${reasonOf(error)}`}\n`,
	);
	process.exit(1);
}
