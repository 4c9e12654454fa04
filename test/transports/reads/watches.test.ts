import { expect, onTestFinished, test } from "vitest";
import { READ_KEY, WatchService } from "../../rpc/watch-service.ts";
import { EventStream } from "../../support/event-stream.ts";
import { RawHttp } from "../../support/raw-http.ts";

const PATH = "/api/v1/updates:watch";
const MIB = 1024 * 1024;

const open = (service: WatchService, query = "") => EventStream.open(service, READ_KEY, `${PATH}${query}`);

/** Opens a stream of whole records, from the beginning, over a connection that reads nothing after the first bytes. */
async function silent(service: WatchService): Promise<RawHttp> {
	const client = await new RawHttp(service).connected();
	onTestFinished(() => client[Symbol.dispose]());
	client.pause();
	await client.write(
		`GET ${PATH}?after_sequence=0&view=full HTTP/1.1\r\nHost: test\r\nX-Access-Token: ${READ_KEY}\r\n\r\n`,
	);
	return client;
}

test("only so many streams are open at once, and one that ends makes room", async () => {
	await using service = await WatchService.start(2 ** 30, { requests: 1, bytes: MIB });
	const first = await open(service);
	expect(await first.heartbeat()).toBe("0");
	using second = await open(service);
	expect([second.response.status, second.response.headers.get("Retry-After"), await second.text()]).toEqual([
		503,
		"5",
		'{"detail":"Too many requests are under way; try again later"}',
	]);
	first[Symbol.dispose]();
	await expect.poll(() => service.admission.underWay("watch").requests).toBe(0);
	using third = await open(service);
	expect(third.response.status).toBe(200);
});

test("a client that does not read holds one batch, and is disconnected after a time", async () => {
	await using service = await WatchService.start(2 ** 30, { requests: 9, bytes: 64 * MIB }, 500);
	const size = 3 * MIB;
	for (let update = 0; update < 8; update++) await service.reading.keep({ agent_state: { filler: "x".repeat(size) } });
	await silent(service);
	const under = () => service.admission.underWay("watch");
	let peak = 0;
	await expect
		.poll(() => {
			peak = Math.max(peak, under().bytes);
			return peak > 0 && under().requests === 0;
		})
		.toBe(true);
	expect(peak).toBeGreaterThan(size);
	expect(peak).toBeLessThan(2 * size);
	expect(service.admission.underWay("watch")).toEqual({ requests: 0, bytes: 0 });
	expect(service.watches.recent.usage.followers).toBe(0);
});

test("a stream for whose messages there is no room ends, and says when to continue", async () => {
	await using service = await WatchService.start(2 ** 30, { requests: 9, bytes: 4 * MIB });
	for (let update = 0; update < 4; update++)
		await service.reading.keep({ agent_state: { filler: "x".repeat(3 * MIB) } });
	await silent(service);
	await expect.poll(() => service.admission.underWay("watch").bytes).toBeGreaterThan(3 * MIB);
	using begun = await open(service, "?view=full");
	await begun.heartbeat();
	using late = await open(service, "?view=full&after_sequence=1");
	const detail = "Too many bytes wait for watches that are not read; continue after the last sequence number";
	expect([late.response.status, JSON.parse(await late.text())]).toEqual([429, { detail }]);
	await service.reading.keep({ agent_state: { filler: "x".repeat(3 * MIB) } });
	expect(await begun.next()).toEqual({ id: "4", type: "end", data: JSON.stringify({ status: 429, detail }) });
	expect([await begun.next(), begun.parser.retry]).toEqual([undefined, 1_000]);
});

test("a quiet stream has heartbeats, and only the first one has an id", async () => {
	await using service = await WatchService.start(10);
	await service.keep(2);
	using stream = await open(service);
	for (let heartbeat = 0; heartbeat < 3; heartbeat++) expect(await stream.heartbeat()).toBe("2");
	expect([stream.pending, stream.parser.comments.slice(0, 3)]).toEqual([[], ["heartbeat", "heartbeat", "heartbeat"]]);
});
