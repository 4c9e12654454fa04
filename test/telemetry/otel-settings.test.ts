import { expect, test } from "vitest";
import { readConfig } from "../../src/config/config.ts";
import { readOtelSettings } from "../../src/telemetry/otel-settings.ts";

const off = {
	traces: false,
	metrics: false,
	metricInterval: 60_000,
	sampler: { parentBased: true, share: 1 },
};
const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:4318" };

test("neither traces nor metrics are sent unless an endpoint is set", () => {
	expect(readOtelSettings({})).toEqual({ settings: off, mistakes: [] });
	expect(readOtelSettings({ OTEL_EXPORTER_OTLP_ENDPOINT: " ", OTEL_SERVICE_NAME: "a" }).settings).toEqual(off);
	expect(readConfig({}).otel).toEqual(off);
});

test.each([
	[ENDPOINT, { traces: true, metrics: true }],
	[{ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "https://a/v1/traces" }, { traces: true }],
	[{ OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: "https://a/v1/metrics" }, { metrics: true }],
	[{ ...ENDPOINT, OTEL_TRACES_EXPORTER: "none" }, { metrics: true }],
	[{ ...ENDPOINT, OTEL_METRICS_EXPORTER: "none", OTEL_TRACES_EXPORTER: "otlp" }, { traces: true }],
	[{ ...ENDPOINT, OTEL_SDK_DISABLED: "TRUE" }, {}],
	[{ OTEL_EXPORTER_OTLP_PROTOCOL: "http/protobuf", OTEL_METRIC_EXPORT_INTERVAL: "500" }, { metricInterval: 500 }],
	[{ OTEL_TRACES_SAMPLER: "always_off" }, { sampler: { parentBased: false, share: 0 } }],
	[{ OTEL_TRACES_SAMPLER: "always_on" }, { sampler: { parentBased: false, share: 1 } }],
	[
		{ OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "0.25" },
		{ sampler: { parentBased: false, share: 0.25 } },
	],
	[
		{ OTEL_TRACES_SAMPLER: "parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG: "0.25" },
		{ sampler: { parentBased: true, share: 0.25 } },
	],
	[{ OTEL_TRACES_SAMPLER: "parentbased_always_off" }, { sampler: { parentBased: true, share: 0 } }],
])("the variables %o are read", (env, expected) => {
	expect(readOtelSettings(env)).toEqual({ settings: { ...off, ...expected }, mistakes: [] });
});

test("each mistake is reported with its variable and the accepted values, but not the given value", () => {
	const env = {
		OTEL_TRACES_EXPORTER: "canary",
		OTEL_EXPORTER_OTLP_PROTOCOL: "grpc",
		OTEL_EXPORTER_OTLP_ENDPOINT: "canary:4317",
		OTEL_METRIC_EXPORT_INTERVAL: "0",
		OTEL_TRACES_SAMPLER: "canary",
		OTEL_TRACES_SAMPLER_ARG: "canary",
	};
	const { settings, mistakes } = readOtelSettings(env);
	expect(settings).toBeUndefined();
	expect(mistakes).toEqual([
		"OTEL_TRACES_EXPORTER: takes otlp or none",
		"OTEL_EXPORTER_OTLP_PROTOCOL: takes http/protobuf only",
		"OTEL_EXPORTER_OTLP_ENDPOINT: takes a URL that begins with http:// or https://",
		"OTEL_METRIC_EXPORT_INTERVAL: takes milliseconds, from 1 to 2147483647",
		"OTEL_TRACES_SAMPLER: takes always_on, always_off or traceidratio, each also with parentbased_ before it",
		"OTEL_TRACES_SAMPLER_ARG: takes a number from 0 to 1",
	]);
	expect(() => readConfig(env)).toThrow("OTEL_EXPORTER_OTLP_PROTOCOL: takes http/protobuf only");
});
