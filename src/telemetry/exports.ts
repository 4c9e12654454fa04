import { type ExportResult, ExportResultCode } from "@opentelemetry/core";
import type { Log } from "./log.ts";

/** An exporter of OpenTelemetry, of metrics or spans. */
interface Exporter<Items> {
	export(items: Items, done: (result: ExportResult) => void): void;
}

/**
 * The same exporter, which logs that its receiver cannot be reached, once until it can again. The SDK itself tells it
 * nobody but its own log.
 */
export function reportingTo<Items, Kind extends Exporter<Items>>(
	exporter: Kind & Exporter<Items>,
	signal: "metrics" | "traces",
	log: Pick<Log, "exportFailed">,
): Kind {
	const send = exporter.export.bind(exporter);
	let failing = false;
	exporter.export = (items, done) =>
		send(items, (result) => {
			const fails = result.code !== ExportResultCode.SUCCESS;
			if (fails && !failing) log.exportFailed(signal, result.error ?? new Error("The export failed"));
			failing = fails;
			done(result);
		});
	return exporter;
}
