import { type ExportResult, ExportResultCode } from "@opentelemetry/core";

/** Is told of each attempt to send something: the error, or undefined for success. */
export type OnExport = (error: Error | undefined) => void;

/** An exporter of OpenTelemetry, of metrics or spans. */
interface Exporter<Items> {
	export(items: Items, done: (result: ExportResult) => void): void;
}

/** The same exporter, which tells how its attempts end. The SDK itself tells it nobody but its own log. */
export function reportingTo<Items, Kind extends Exporter<Items>>(
	exporter: Kind & Exporter<Items>,
	onExport: OnExport,
): Kind {
	const send = exporter.export.bind(exporter);
	exporter.export = (items, done) =>
		send(items, (result) => {
			onExport(result.code === ExportResultCode.SUCCESS ? undefined : (result.error ?? new Error("The export failed")));
			done(result);
		});
	return exporter;
}
