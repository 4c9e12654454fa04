import { z } from "zod";

/** Settings from OpenTelemetry's environment variables that the service itself uses. The exporters read the others. */
export interface OtelSettings {
	/** Whether traces are sent to an OTLP receiver. */
	readonly traces: boolean;
	/** Whether metrics are sent to an OTLP receiver. */
	readonly metrics: boolean;
	/** Milliseconds between two exports of metrics. */
	readonly metricInterval: number;
	readonly sampler: SamplerSetting;
}

/** Which traces are recorded. */
export interface SamplerSetting {
	/** Whether a request with a parent span is recorded if and only if the parent is. */
	readonly parentBased: boolean;
	/** Share of the other traces that are recorded, from 0 to 1. */
	readonly share: number;
}

const ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT";
const LONGEST_INTERVAL = 2 ** 31 - 1;

// The messages never quote the value: that of an endpoint may hold a password.
const exporters = z.enum(["otlp", "none"], "takes otlp or none").default("otlp");
const protocol = z.literal("http/protobuf", "takes http/protobuf only").optional();
const address = z.url({ protocol: /^https?$/, error: "takes a URL that begins with http:// or https://" }).optional();
const number = (error: string, least: number, most: number) =>
	z.coerce.number(error).min(least, error).max(most, error);
const SAMPLER = /^(?:parentbased_)?(?:always_on|always_off|traceidratio)$/;

/** The variables (OpenTelemetry specification, "Environment Variable Specification" and "OTLP Exporter"). */
const variables = z.object({
	OTEL_SDK_DISABLED: z
		.string()
		.optional()
		.transform((text) => text?.toLowerCase() === "true"),
	OTEL_TRACES_EXPORTER: exporters,
	OTEL_METRICS_EXPORTER: exporters,
	OTEL_EXPORTER_OTLP_PROTOCOL: protocol,
	OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: protocol,
	OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: protocol,
	[ENDPOINT]: address,
	OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: address,
	OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: address,
	OTEL_METRIC_EXPORT_INTERVAL: number(`takes milliseconds, from 1 to ${LONGEST_INTERVAL}`, 1, LONGEST_INTERVAL)
		.int(`takes milliseconds, from 1 to ${LONGEST_INTERVAL}`)
		.default(60_000),
	OTEL_TRACES_SAMPLER: z
		.string()
		.regex(SAMPLER, "takes always_on, always_off or traceidratio, each also with parentbased_ before it")
		.default("parentbased_always_on"),
	OTEL_TRACES_SAMPLER_ARG: number("takes a number from 0 to 1", 0, 1).default(1),
});

/** Names of the variables that only the exporters and the resource read. */
const READ_BY_LIBRARY =
	/^OTEL_(?:SERVICE_NAME|RESOURCE_ATTRIBUTES|EXPORTER_OTLP_(?:(?:TRACES|METRICS)_)?(?:HEADERS|TIMEOUT|COMPRESSION|CERTIFICATE|CLIENT_CERTIFICATE|CLIENT_KEY))$/;

/** Returns the variables that are set, sorted by name, with keys and passwords masked. */
export function shownOtelVariables(
	env: Readonly<Record<string, string | undefined>>,
	mask: string,
): { readonly name: string; readonly value: string }[] {
	const isKnown = (name: string) => Object.hasOwn(variables.shape, name) || READ_BY_LIBRARY.test(name);
	return Object.entries(env)
		.flatMap(([name, text]) => (isKnown(name) && text?.trim() ? [{ name, value: shown(name, text.trim(), mask) }] : []))
		.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

function shown(name: string, text: string, mask: string): string {
	if (name.endsWith("_HEADERS")) return mask;
	if (!name.endsWith("_ENDPOINT")) return text;
	const { origin, pathname, username, password, search } = new URL(text);
	return username + password + search === "" ? text : `${origin}${pathname} (and ${mask})`;
}

/**
 * Reads OpenTelemetry's variables. Nothing is exported unless an endpoint is set. A blank variable counts as unset.
 *
 * @returns the settings, or undefined and a line for each mistake
 */
export function readOtelSettings(env: Readonly<Record<string, string | undefined>>): {
	readonly settings: OtelSettings | undefined;
	readonly mistakes: readonly string[];
} {
	const set = Object.entries(env).flatMap(([name, text]) => (text?.trim() ? [[name, text.trim()]] : []));
	const { data, error } = variables.safeParse(Object.fromEntries(set));
	if (data === undefined) {
		const mistakes = new Set(error?.issues.map(({ path, message }) => `${String(path[0])}: ${message}`));
		return { settings: undefined, mistakes: [...mistakes] };
	}
	const enabled = !data.OTEL_SDK_DISABLED;
	const sends = (exporter: string, endpoint: string | undefined): boolean =>
		enabled && exporter === "otlp" && (endpoint ?? data[ENDPOINT]) !== undefined;
	const sampler = data.OTEL_TRACES_SAMPLER;
	const root = sampler.replace("parentbased_", "");
	return {
		mistakes: [],
		settings: {
			traces: sends(data.OTEL_TRACES_EXPORTER, data.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT),
			metrics: sends(data.OTEL_METRICS_EXPORTER, data.OTEL_EXPORTER_OTLP_METRICS_ENDPOINT),
			metricInterval: data.OTEL_METRIC_EXPORT_INTERVAL,
			sampler: {
				parentBased: sampler !== root,
				share: root === "always_on" ? 1 : root === "always_off" ? 0 : data.OTEL_TRACES_SAMPLER_ARG,
			},
		},
	};
}
