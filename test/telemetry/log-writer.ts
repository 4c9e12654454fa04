import { once } from "node:events";
import { createLogger } from "../../src/telemetry/log.ts";
import { LogOutput, lineFormat } from "../../src/telemetry/log-output.ts";

/**
 * A child process of log-output.test.ts. For each number that its parent sends, it logs as many lines. It replies how
 * many lines it has logged in total and how many of them were dropped. When its parent disconnects, it waits until its
 * lines are read, at most for the milliseconds in its argument.
 */
const output = new LogOutput(process.stdout.fd, lineFormat("json", false));
const log = createLogger("info", output, Number.POSITIVE_INFINITY);
let written = 0;
process.on("message", (lines: number) => {
	for (const last = written + lines; written < last; written++)
		log.emit("listening", { listener: "http", address: String(written) });
	process.send?.({ written, dropped: log.droppedLines });
});
await once(process, "disconnect");
await output.end(Number(process.argv[2]));
process.exit(0);
