import { dirname } from "node:path/posix";
import { scopes } from "../access/keys.ts";
import type { Config } from "../config/config.ts";
import { formatAddress } from "../config/parsers.ts";
import { playDemo } from "../demo/demo.ts";
import type { FirstKeys } from "../server.ts";
import { createLogger } from "../telemetry/log.ts";
import { LogOutput, lineFormat } from "../telemetry/log-output.ts";
import type { Values } from "./options.ts";

/** The command `serve`: runs the service until a signal. With `demo`, invented conversations are posted to it. */
export async function serve(config: Config, { demo = false, distribute = false }: Values): Promise<void> {
	const { fd, isTTY } = process.stdout;
	const output = new LogOutput(fd, lineFormat(config.LOG_FORMAT, isTTY));
	const log = createLogger(config.LOG_LEVEL, output);
	const signalled = firstSignal();
	// Loaded here, so that an error while loading these modules is reported like any other startup failure.
	const { startService } = await import("../server.ts");
	const { WEBHOOK_PATH } = await import("../transports/webhook/webhook.ts");
	const ending = new AbortController();
	const onKeys = (keys: FirstKeys) => {
		showFirstKeys(keys, config, WEBHOOK_PATH, demo);
		if (!demo) return;
		const url = `${urlOf(keys, config)}${dirname(WEBHOOK_PATH)}`;
		playDemo(url, keys.key, ending.signal).catch((error: unknown) => {
			if (!ending.signal.aborted) log.emit("unexpected_error", { where: "demo" }, error);
		});
	};
	const service = await startService(config, log, onKeys, { distribute, firstScopes: demo ? scopes : undefined });
	log.emit("stopping", { signal: await signalled });
	ending.abort();
	// Exits when the stop hangs. No acknowledged data is lost, because it is on disk.
	const forcedExit = setTimeout(() => {
		const late = new Error("The service has not stopped within DRAIN_SECONDS");
		log.emit("unexpected_error", { where: "stop" }, late);
		process.exit(1);
	}, config.DRAIN_SECONDS * 1000);
	const status = await service.stop().then(
		() => 0,
		(error: unknown) => {
			log.emit("unexpected_error", { where: "stop" }, error);
			log.sumUp();
			return 1;
		},
	);
	clearTimeout(forcedExit);
	await output.end(LOG_FLUSH_MILLISECONDS);
	process.exit(status);
}

/** Maximum time for which a stopped process tries to write its last log lines when the reader is slow. */
const LOG_FLUSH_MILLISECONDS = 500;

/** Time after the first signal in which further ones count as the same: `npm start` forwards Ctrl-C a second time. */
const SAME_SIGNAL_MILLISECONDS = 500;

/** Resolves with the first signal to stop, even if it arrives during startup. A later one ends the process at once. */
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

/** Shows the new access keys. They cannot be shown again, because the service stores only their hashes. */
function showFirstKeys(keys: FirstKeys, config: Config, path: string, demo: boolean): void {
	const { key, consoleKey } = keys;
	const url = urlOf(keys, config);
	const console =
		consoleKey === undefined
			? ""
			: `Open the console. This address has a key that ${demo ? "opens every page" : "can only read"}, and ends after 24 hours:

  ${url}/#key=${consoleKey}

`;
	process.stderr.write(`
${
	demo
		? "This is a demo with invented conversations. Its database is removed at the end, and of the environment it takes only\n" +
			"addresses, the path, the console and the log: ACCESS_KEYS and all others do not count. Its access key:"
		: "ACCESS_KEYS is not set, so the service generated an access key. It is shown only once:"
}

  ${key}

${console}Try it:

  curl -sS ${url}${path} -H 'X-Access-Token: ${key}' -H 'Content-Type: application/json' \\
    -d '{"id":"7c9e6679-7425-40de-944b-e07fc1f90ae7","workspace":{"kind":"LocalWorkspace","working_dir":"/workspace"},"agent":{"kind":"ACPAgent","acp_command":["acp"]}}'

`);
}

/** Returns the URL of the HTTP listener, with the base path. */
function urlOf({ httpAddress }: FirstKeys, { tls, BASE_PATH }: Config): string {
	return `${tls === undefined ? "http" : "https"}://${formatAddress(httpAddress)}${BASE_PATH}`;
}
