import { once } from "node:events";
import { createLogger } from "../../src/telemetry/log.ts";
import { lineFormat } from "../../src/telemetry/log-format.ts";
import { LogOutput } from "../../src/telemetry/log-output.ts";

/**
 * A program of its own that logs as many lines as it is told to, each time that it gets a number from its parent, and
 * answers how many it has logged and how many of them were dropped. At the end it waits for its reader for the milliseconds that its argument says.
 */
const output = new LogOutput(process.stdout.fd, lineFormat("json", false));
const log = createLogger("info", output, { window: 0 });
let written = 0;
process.on("message", (lines: number) => {
	for (const last = written + lines; written < last; written++) log.listening("http", String(written));
	process.send?.({ written, dropped: log.droppedLines });
});
await once(process, "disconnect");
await output.end(Number(process.argv[2]));
process.exit(0);
