import { z } from "zod";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, ratioFigure } from "../figures.ts";
import { type Measurement, measurePairs, Target } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { peakResidentBytes } from "../processes/usage.ts";
import type { BodyName } from "../requests.ts";
import type { Settings } from "../settings.ts";
import { grpcSide, listening, noteOf, webhookSide } from "./parts.ts";

/** Webhook ingest, durable, against a server that only reads the body and parses it. */
export function webhook(body: BodyName, target: number): Benchmark {
	const name = `webhook-${body}`;
	return {
		name,
		about: "webhook ingest, durable, against a node:http server that reads the body and runs JSON.parse",
		run: (settings, report) =>
			measureIngest(settings, { name, body, target }, async (service, load) => {
				await using yardstick = await Child.start("yardsticks/http-json.ts", listening);
				await using client = await Child.start("load/http.ts", z.unknown());
				const subject = await webhookSide(body, service);
				const reference = { ...subject, name: "yardstick", pid: yardstick.pid, port: yardstick.ready.port };
				return await measurePairs(load, new Target(client, reference), new Target(client, subject), report);
			}),
	};
}

/** gRPC ingest, durable, against a server that only decodes the message. */
export function grpc(body: BodyName, target: number): Benchmark {
	const name = `grpc-${body}`;
	return {
		name,
		about: "gRPC ingest, durable, against a grpc-js server that decodes the same message",
		run: (settings, report) =>
			measureIngest(settings, { name, body, target }, async (service, load) => {
				await using yardstick = await Child.start("yardsticks/grpc.ts", listening);
				await using client = await Child.start("load/grpc.ts", z.unknown());
				const subject = await grpcSide(body, service);
				const server = { name: "yardstick", pid: yardstick.pid, port: yardstick.ready.port };
				const reference = { ...subject, ...server, path: "/yardstick/Decode" };
				return await measurePairs(load, new Target(client, reference), new Target(client, subject), report);
			}),
	};
}

/** Large bodies under way at a time: enough to keep every processor busy. */
const LARGE_CONCURRENCY = 32;

async function measureIngest(
	settings: Settings,
	{ name, body, target }: { readonly name: string; readonly body: BodyName; readonly target: number },
	measure: (service: Service, load: Settings) => Promise<[Measurement, Measurement][]>,
): Promise<Figure[]> {
	await using folder = await DiskFolder.create(settings.folder);
	await using service = await Service.start({ folder: folder.path, profile: settings.profile });
	const load =
		body === "large" ? { ...settings, concurrency: Math.min(settings.concurrency, LARGE_CONCURRENCY) } : settings;
	const pairs = await measure(service, load);
	const ratios = pairs.map(([yardstick, subject]) => subject.rate / yardstick.rate);
	const memory: Figure = {
		name: `${name}: peak resident memory`,
		value: (await peakResidentBytes(service.pid)) / 2 ** 20,
		unit: "MiB",
		// Profiling takes memory of its own.
		target: body === "large" && settings.profile === undefined ? { at: "most", value: 400 } : undefined,
		note: "",
	};
	return [ratioFigure(name, ratios, { at: "least", value: target }, noteOf(pairs)), memory];
}
