import { once } from "node:events";
import { createServer } from "node:net";
import { describe, expect, test } from "vitest";
import { KEY, startTestService } from "../support/service.ts";
import { OrdinaryClients } from "./ordinary.ts";
import { Report, unlessSilent } from "./report.ts";

describe("a report", () => {
	test.each(["200", "413", "422", "closed", "OK", "InvalidArgument", "ResourceExhausted", "NotFound"])(
		"takes %s for an answer",
		(answer) => {
			const report = new Report();
			report.answer("a record", answer);
			report.answer("a record", answer);
			expect([report.lines(), report.broken]).toEqual([[`a record: ${answer} 2`], []]);
		},
	);

	test.each(["500", "502", "503", "Unavailable", "Internal", "Unknown", "DataLoss", "silence"])(
		"takes %s for a failure of the service, unless it is overloaded and asks to try again",
		(answer) => {
			const report = new Report();
			report.answer("a record", answer, { sent: () => "these bytes" });
			const broken = `a record was answered with ${answer}`;
			expect([report.lines(), report.broken]).toEqual([[`a record: ${answer} 1`], [`${broken}: these bytes`]]);
			const overloaded = new Report();
			overloaded.answer("a record", answer, { refusable: true });
			expect(overloaded.broken).toEqual(["503", "Unavailable"].includes(answer) ? [] : [broken]);
		},
	);

	test("tells the first broken laws, and how many there are", () => {
		const report = new Report();
		for (let count = 1; count <= 23; count++) report.expect(false, `law ${count}`);
		expect(report.broken).toHaveLength(21);
		expect(report.broken.slice(-2)).toEqual(["law 20", "and 3 more"]);
	});
});

test("an answer that does not come is silence", async () => {
	const never = new Promise<string>(() => undefined);
	expect(await unlessSilent(never, 1)).toBe("silence");
	expect(await unlessSilent(Promise.resolve("200"))).toBe("200");
});

describe("ordinary clients", () => {
	test("have no problems with a service that answers", async () => {
		await using service = await startTestService();
		const clients = await OrdinaryClients.start(service, KEY, "all");
		const { count, slowest, problems } = await clients.stop();
		expect(problems).toEqual([]);
		expect(count).toBeGreaterThanOrEqual(6);
		expect(slowest.milliseconds).toBeGreaterThan(0);
	});

	test("tell of a service that has gone", async () => {
		const service = await startTestService();
		const clients = await OrdinaryClients.start(service, KEY, "reads");
		await service[Symbol.asyncDispose]();
		// A server that accepts connections and closes them.
		const { port } = new URL(service.http);
		const server = createServer((socket) => socket.destroy()).listen(Number(port), "127.0.0.1");
		await once(server, "listening");
		await once(server, "connection");
		const { problems } = await clients.stop();
		server.close();
		expect(problems.length).toBeGreaterThan(0);
		expect(problems[0]).toMatch(/ failed: /);
	});
});
