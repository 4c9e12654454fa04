import { Code, ConnectError } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ingestClient, PROTOCOLS, readClient } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

let service: TestService;
let newest: bigint;

beforeAll(async () => {
	service = await startTestService();
	for (let count = 0; count < 3; count++)
		({ sequence: newest } = await ingestClient(service, "gRPC", KEY).ingestConversation(ingestRequest(record())));
});
afterAll(() => service[Symbol.asyncDispose]());

test.each(PROTOCOLS)(
	"a list or watch that starts beyond the newest sequence fails with OUT_OF_RANGE and names it, over %s",
	async (protocol) => {
		const client = readClient(service, protocol, KEY);
		for (const after of [newest + 1n, 2n ** 63n - 1n]) {
			const listed = client.listConversationUpdates({ afterSequence: after });
			const watched = client.watchConversationUpdates({ start: { case: "afterSequence", value: after } });
			for (const outcome of await Promise.allSettled([listed, watched[Symbol.asyncIterator]().next()])) {
				const failure = ConnectError.from(outcome.status === "rejected" ? outcome.reason : "nothing was refused");
				expect(failure.code).toBe(Code.OutOfRange);
				expect(failure.rawMessage).toMatch(new RegExp(`\\b${newest}\\b`));
			}
		}
		const { updates } = await client.listConversationUpdates({ afterSequence: newest });
		expect(updates).toEqual([]);
	},
);
