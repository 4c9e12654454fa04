import { setTimeout as wait } from "node:timers/promises";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { z } from "zod";
import {
	ConversationService,
	WatchConversationUpdatesRequestSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { rpcPath } from "../../test/support/clients.ts";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, median, quantile, ratioFigure, round } from "../figures.ts";
import { type WatchPlan, watchProgress } from "../load/watch-plan.ts";
import { CONVERSATIONS, measurePairs, ServerTarget } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { peakResidentBytes, processorSeconds } from "../processes/usage.ts";
import { conversationId, grpcFrame } from "../requests.ts";
import { fillHistory, grpcLoad, noteOf } from "./parts.ts";

const FOLLOWERS = 1_000;
const RATE = 200;
const FAN_OUT_MILLISECONDS = 20_000;
const LIVE_WATCHERS = 100;
/** Maximum time, in milliseconds, for the watchers to receive the expected updates. */
const RECEIVE_TIMEOUT = 60_000;

type WatchInit = MessageInitShape<typeof WatchConversationUpdatesRequestSchema>;
const BEGINNING = { case: "afterSequence", value: 0n } as const;

/** Delay until many watchers have received an update. */
export const fanOut: Benchmark = {
	name: "fan-out",
	about: `delay from an update's arrival to its receipt by each of ${FOLLOWERS} watchers at ${RATE} updates a second`,
	async run(settings, report) {
		await using folder = await DiskFolder.create(settings.folder);
		// Each watcher first receives this stored update, which shows that it is ready.
		await fillHistory(folder.database, "small", 1, report);
		await using service = await Service.start({ database: folder.database, profile: settings.profile });
		await using watchers = await startWatchers(service, FOLLOWERS, [{ start: BEGINNING }]);
		await received(watchers, 1);
		await watchers.ask({ kind: "reset" } satisfies WatchPlan, z.unknown());
		await using writer = await Child.start("load/grpc.ts", z.unknown());
		const target = new ServerTarget(writer, await grpcLoad("small", service), 1);
		const used = await processorSeconds(service.pid);
		const load = { concurrency: settings.concurrency, milliseconds: FAN_OUT_MILLISECONDS, rate: RATE };
		const { rate } = await target.load(load);
		const progress = await received(watchers, target.sent);
		const share = ((await processorSeconds(service.pid)) - used) / (FAN_OUT_MILLISECONDS / 1000);
		const memory = (await peakResidentBytes(service.pid)) / 2 ** 20;
		const note = `${round(rate)} updates/s, ${progress.total} messages, service ${round(share * 100)} % of a core`;
		const delay = (of: number): number => quantile(progress.delays, of);
		return [
			{ name: "fan-out: delay, median", value: delay(0.5), unit: "ms", note },
			{
				name: "fan-out: delay, 99th percentile",
				value: delay(0.99),
				unit: "ms",
				target: { at: "most", value: 1000 },
				note,
			},
			{ name: "fan-out: peak resident memory", value: memory, unit: "MiB", note: "" },
		];
	},
};

/** Cost of watchers for the senders of updates. */
export function watched(what: "all" | "one"): Benchmark {
	const name = `watched-${what}`;
	const followed = what === "all" ? "all conversations" : "one conversation each";
	return {
		name,
		about: `gRPC ingest with ${LIVE_WATCHERS} live watchers of ${followed}, against none`,
		async run(settings, report): Promise<Figure[]> {
			await using aloneFolder = await DiskFolder.create(settings.folder);
			await using watchedFolder = await DiskFolder.create(settings.folder);
			await fillHistory(aloneFolder.database, "small", CONVERSATIONS, report);
			await fillHistory(watchedFolder.database, "small", CONVERSATIONS, report);
			await using alone = await Service.start({ database: aloneFolder.database });
			await using watched = await Service.start({ database: watchedFolder.database, profile: settings.profile });
			const requests = await Promise.all(
				Array.from(
					{ length: LIVE_WATCHERS },
					async (_, index): Promise<WatchInit> => ({
						start: BEGINNING,
						conversationId: what === "all" ? "" : await conversationId("small", index),
					}),
				),
			);
			await using watchers = await startWatchers(watched, LIVE_WATCHERS, requests);
			await received(watchers, what === "all" ? CONVERSATIONS : 1);
			await using client = await Child.start("load/grpc.ts", z.unknown());
			const reference = new ServerTarget(client, { ...(await grpcLoad("small", alone)), name: "alone" }, CONVERSATIONS);
			const subject = new ServerTarget(
				client,
				{ ...(await grpcLoad("small", watched)), name: "watched" },
				CONVERSATIONS,
			);
			const lags: number[] = [];
			const pairs = await measurePairs(settings, reference, subject, report, async () => {
				const start = performance.now();
				await received(watchers, what === "all" ? subject.sent : Math.floor(subject.sent / CONVERSATIONS));
				lags.push(performance.now() - start);
			});
			const ratios = pairs.map(([without, with_]) => with_.rate / without.rate);
			const lag: Figure = {
				name: `${name}: time until the last watcher had caught up`,
				value: median(lags),
				unit: "ms",
				spread: [Math.min(...lags), Math.max(...lags)],
				note: "",
			};
			return [ratioFigure(name, ratios, { at: "least", value: 0.8 }, noteOf(pairs)), lag];
		},
	};
}

async function startWatchers(service: Service, watchers: number, inits: readonly WatchInit[]): Promise<Child<unknown>> {
	const child = await Child.start("load/watchers.ts", z.unknown());
	const plan: WatchPlan = {
		kind: "start",
		port: service.grpcPort,
		path: rpcPath(ConversationService.method.watchConversationUpdates),
		key: service.key,
		watchers,
		requests: inits.map((init) =>
			grpcFrame(WatchConversationUpdatesRequestSchema, create(WatchConversationUpdatesRequestSchema, init)),
		),
	};
	await child.ask(plan, z.unknown());
	return child;
}

/**
 * Waits until every watcher has received a number of updates.
 *
 * @throws Error when a stream ended, updates came out of order, or the time is over
 */
async function received(watchers: Child<unknown>, updates: number) {
	const deadline = Date.now() + RECEIVE_TIMEOUT;
	while (true) {
		const progress = await watchers.ask({ kind: "progress" } satisfies WatchPlan, watchProgress);
		const { ended, reason, disordered, least } = progress;
		if (ended > 0) throw new Error(`${ended} streams ended, the first: ${reason}`);
		if (disordered > 0) throw new Error(`${disordered} updates came out of order`);
		if (least >= updates) return progress;
		if (Date.now() > deadline) throw new Error(`a watcher has ${least} of ${updates} updates`);
		await wait(20);
	}
}
