import { type ExportResult, ExportResultCode } from "@opentelemetry/core";
import type { Logger } from "./log.ts";

/** An OpenTelemetry exporter, of metrics or spans. */
interface Exporter<Items> {
	export(items: Items, done: (result: ExportResult) => void): void;
}

/**
 * Makes an exporter write to the service's log when an export fails. Consecutive failures are logged once. The SDK
 * reports them only to its own log.
 *
 * @returns the same exporter
 */
export function logExportFailures<Items, Kind extends Exporter<Items>>(
	exporter: Kind & Exporter<Items>,
	signal: "metrics" | "traces",
	log: Pick<Logger, "exportFailed">,
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
