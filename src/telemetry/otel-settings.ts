import { z } from "zod";

/** What of the variables of OpenTelemetry decides here. The exporters read the others by themselves. */
export interface OtelSettings {
	/** Whether traces are sent to an OTLP receiver. */
	readonly traces: boolean;
	/** Whether metrics are sent to an OTLP receiver. */
	readonly metrics: boolean;
	/** Milliseconds between two times that metrics are sent. */
	readonly metricInterval: number;
	readonly sampler: SamplerSetting;
}

/** Which traces are recorded. */
export interface SamplerSetting {
	/** Whether a request that belongs to a trace of its caller is recorded just if that is. */
	readonly parentBased: boolean;
	/** Share of the other traces that is recorded, from 0 to 1. */
	readonly share: number;
}

const ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT";
const LONGEST_INTERVAL = 2 ** 31 - 1;

const exporters = z.enum(["otlp", "none"]).default("otlp");
const protocol = z.literal("http/protobuf").optional();
const address = z.url({ protocol: /^https?$/ }).optional();

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
	OTEL_METRIC_EXPORT_INTERVAL: z.coerce.number().int().min(1).max(LONGEST_INTERVAL).default(60_000),
	OTEL_TRACES_SAMPLER: z
		.enum([
			"always_on",
			"always_off",
			"traceidratio",
			"parentbased_always_on",
			"parentbased_always_off",
			"parentbased_traceidratio",
		])
		.default("parentbased_always_on"),
	OTEL_TRACES_SAMPLER_ARG: z.coerce.number().min(0).max(1).default(1),
});

/** Names of what the exporters and the resource read by themselves. */
const READ_BY_LIBRARY =
	/^OTEL_(?:SERVICE_NAME|RESOURCE_ATTRIBUTES|EXPORTER_OTLP_(?:(?:TRACES|METRICS)_)?(?:HEADERS|TIMEOUT|COMPRESSION|CERTIFICATE|CLIENT_CERTIFICATE|CLIENT_KEY))$/;

/** Whether a variable has a meaning here. */
function isKnown(name: string): boolean {
	return Object.hasOwn(variables.shape, name) || READ_BY_LIBRARY.test(name);
}

/** The variables that are set, by name, each as a person may read it: without keys and passwords. */
export function shownOtelVariables(
	env: Readonly<Record<string, string | undefined>>,
	mask: string,
): { readonly name: string; readonly value: string }[] {
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

/** What a mistake says of what the variable takes. The values of endpoints may hold a password: none is repeated. */
const TAKES: Readonly<Record<string, string>> = {
	EXPORTER: "takes otlp or none",
	PROTOCOL: "takes http/protobuf only",
	ENDPOINT: "takes a URL that begins with http:// or https://",
	INTERVAL: `takes milliseconds, from 1 to ${LONGEST_INTERVAL}`,
	SAMPLER: "takes always_on, always_off or traceidratio, each also with parentbased_ before it",
	ARG: "takes a number from 0 to 1",
};

/**
 * Reads the variables of OpenTelemetry. Nothing is sent unless an endpoint is set. A blank variable counts as unset.
 *
 * @returns the settings, undefined when there are mistakes; and the mistakes, a line each
 */
export function readOtelSettings(env: Readonly<Record<string, string | undefined>>): {
	readonly settings: OtelSettings | undefined;
	readonly mistakes: readonly string[];
} {
	const set = Object.entries(env).flatMap(([name, text]) => (text?.trim() ? [[name, text.trim()]] : []));
	const { data, error } = variables.safeParse(Object.fromEntries(set));
	if (data === undefined) {
		const names = new Set((error?.issues ?? []).map(({ path }) => String(path[0])));
		return {
			settings: undefined,
			mistakes: [...names].map((name) => `${name}: ${TAKES[name.split("_").at(-1) ?? ""]}`),
		};
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
