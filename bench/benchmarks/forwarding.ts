import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { z } from "zod";
import type { Benchmark } from "../benchmark.ts";
import { median, quantile, ratioFigure, round } from "../figures.ts";
import { CONVERSATIONS, type LoadTarget, measurePairs, ServerTarget } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { noteOf, webhookLoad } from "./parts.ts";

/** Posts per second while the delay is measured, and for how long, in milliseconds. */
const RATE = 50;
const DURATION = 20_000;
/** Deliveries that wait when the rate is measured. */
const BACKLOG = 3_000;

const told = z.object({ timestamp: z.string() });

/** A receiver that answers at once. Notes for each delivery how long after the update's receipt it arrived, in ms. */
class Receiver implements AsyncDisposable {
	readonly delays: number[] = [];
	readonly #server = createServer((request, response) => {
		const chunks: Buffer[] = [];
		request.on("data", (chunk: Buffer) => chunks.push(chunk));
		request.on("end", () => {
			const { timestamp } = told.parse(JSON.parse(Buffer.concat(chunks).toString()));
			this.delays.push(Date.now() - Date.parse(timestamp));
			response.end();
		});
	});

	/** Returns the URL. */
	async listen(): Promise<string> {
		this.#server.listen(0, "127.0.0.1");
		await once(this.#server, "listening");
		const address = this.#server.address();
		if (typeof address !== "object" || address === null) throw new Error("the receiver has no port");
		return `http://127.0.0.1:${address.port}/`;
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.#server.closeAllConnections();
		this.#server.close();
		await once(this.#server, "close");
	}
}

/** Deliveries to one endpoint: their delay, their rate, and what they cost the ingest. */
export const forwarding: Benchmark = {
	name: "forwarding",
	about: `deliveries to one endpoint: delay at ${RATE} posts a second, rate with a backlog, and webhook ingest beside them`,
	async run(settings, report) {
		await using folder = await DiskFolder.create(settings.folder);
		const [ingest, admin] = [randomBytes(16).toString("hex"), randomBytes(16).toString("hex")];
		const environment = {
			ENCRYPTION_KEY: randomBytes(32).toString("base64"),
			FORWARD_PRIVATE: "on",
			ACCESS_KEYS: `bench:${ingest},admin:${admin}:read+forward`,
		};
		await using service = await Service.start({ database: folder.database, profile: settings.profile, environment });
		await using receiver = new Receiver();
		const url = await receiver.listen();
		const call = async (path: string, body: object) => {
			const answer = await fetch(`http://127.0.0.1:${service.httpPort}/api/v1/endpoints${path}`, {
				method: "POST",
				headers: { "X-Access-Token": admin, "Content-Type": "application/json" },
				body: JSON.stringify(body),
			});
			if (!answer.ok) throw new Error(await answer.text());
		};
		await using client = await Child.start("load/http.ts", z.unknown());
		const posts = new ServerTarget(
			client,
			await webhookLoad("small", { pid: service.pid, httpPort: service.httpPort, key: ingest }),
		);
		const received = async (number: number) => {
			while (receiver.delays.length < number) await new Promise((resolve) => setTimeout(resolve, 20));
		};
		await posts.load({ ...settings, requests: CONVERSATIONS });
		await call("", { name: "all", url, changes: ["STARTED", "UPDATED", "PAUSED", "RESUMED", "FINISHED", "FAILED"] });
		const before = receiver.delays.length;
		const first = posts.sent;
		await posts.load({ ...settings, milliseconds: DURATION, rate: RATE, concurrency: 8 });
		await received(before + posts.sent - first);
		const delays = receiver.delays.slice(before);
		report(`  delay of ${delays.length} deliveries: median ${round(median(delays))} ms`);

		await call("/all:pause", {});
		const waiting = receiver.delays.length;
		await posts.load({ ...settings, milliseconds: 120_000, requests: BACKLOG });
		const began = performance.now();
		await call("/all:resume", {});
		await received(waiting + BACKLOG);
		const rate = BACKLOG / ((performance.now() - began) / 1000);

		const without: LoadTarget = {
			name: "without deliveries",
			async load(limits) {
				await call("/all:pause", {});
				const measured = await posts.load(limits);
				await call("/all:resume", { from: "now" });
				return measured;
			},
		};
		const pairs = await measurePairs({ ...settings, concurrency: 8 }, without, posts, report);
		const ratios = pairs.map(([alone, beside]) => beside.rate / alone.rate);
		const [middle, slow] = [median(delays), quantile(delays, 0.99)];
		return [
			{
				...{ name: "forwarding: delay, 99th percentile", value: slow, unit: "ms", target: { at: "most", value: 1000 } },
				note: `median ${round(middle)} ms, ${RATE} posts a second`,
			},
			{ name: "forwarding: rate", value: rate, unit: "/s", target: { at: "least", value: 200 }, note: "one endpoint" },
			ratioFigure("forwarding: ingest beside deliveries", ratios, undefined, noteOf(pairs)),
		];
	},
};
