import { createClient } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ConversationReconcileService } from "../../gen/conversations/v1/conversation_reconcile_service_pb.js";
import { COMMAND } from "../../src/access/access-keys.ts";
import { ServiceError } from "../../src/errors.ts";
import { NOTHING, type Progress } from "../../src/reconcile/reconcile.ts";
import { commandMethods } from "../../src/rpc/command-methods.ts";
import { inProcessTransport } from "../../src/rpc/rpc-method.ts";

const unused = () => Promise.reject(new Error("not used"));
const agentServer = "http://127.0.0.1:8000";

/** Returns a client, and what the last run shows, ends with, and is ended by. */
function started() {
	const ended = Promise.withResolvers<{ readonly progress: Progress; readonly error: unknown } | undefined>();
	const signals: (AbortSignal | undefined)[] = [];
	const reconciler = {
		senderOf: () => ({ names: [], owner: undefined }),
		run: async (_: unknown, onProgress: (progress: Progress) => void, __?: unknown, signal?: AbortSignal) => {
			signals.push(signal);
			onProgress({ ...NOTHING, conversations: 1 });
			return await ended.promise;
		},
	};
	const store = { compactEvents: unused, returnSpace: unused, resetViews: unused };
	const transport = inProcessTransport(commandMethods(reconciler, store), COMMAND);
	return { client: createClient(ConversationReconcileService, transport), ended, signals };
}

test("a reconciliation lasts as long as its call, and shows what it has done", async () => {
	const { client, ended } = started();
	await expect(client.getReconciliation({})).rejects.toThrow("No run was started");
	const run = client.startReconciliation({ agentServer });
	await expect.poll(() => client.getReconciliation({})).toMatchObject({ running: true, conversations: 1n });
	await expect(client.startReconciliation({ agentServer })).rejects.toThrow("This agent server is being compared");
	ended.resolve({ progress: { ...NOTHING, conversations: 2 }, error: new ServiceError("unavailable", "it failed") });
	await run;
	expect(await client.getReconciliation({})).toMatchObject({ running: false, conversations: 2n, error: "it failed" });
});

test("a reconciliation ends when its caller goes, and none starts beside another one", async () => {
	const { client, ended, signals } = started();
	const gone = new AbortController();
	const run = client.startReconciliation({ agentServer }, { signal: gone.signal });
	await expect.poll(() => signals.length).toBe(1);
	gone.abort();
	await expect(run).rejects.toThrow();
	expect(signals[0]?.aborted).toBe(true);
	ended.resolve(undefined);
	await expect.poll(() => client.getReconciliation({})).toMatchObject({ running: false });
	await expect(client.startReconciliation({ agentServer })).rejects.toThrow("This agent server is being compared");
});
