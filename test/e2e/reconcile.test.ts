import { afterAll, describe, expect, test } from "vitest";
import {
	type Answer,
	FakeAgentServer,
	recordedConversations,
	type Served,
	send,
	serve,
} from "../reconcile/fake-agent-server.ts";
import { ServiceProcess } from "../support/child.ts";
import { postWebhook } from "../support/clients.ts";
import { KEY, testEnvironment } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const opened = new AsyncDisposableStack();
afterAll(() => opened.disposeAsync());

const SESSION_KEY = "agent-server-key";
const conversations = recordedConversations();
const events = conversations.reduce((sum, conversation) => sum + conversation.events.length, 0);
const TAKEN_IN = `${conversations.length} conversations looked at, ${events} events and ${conversations.length} records fetched`;
const SAME = `${conversations.length} conversations looked at, 0 events and 0 records fetched`;

/** An agent server with a session key. */
async function agentServer(of: readonly Served[] = conversations): Promise<FakeAgentServer> {
	const requireKey: Answer = ({ headers }, response) =>
		headers["x-session-api-key"] !== SESSION_KEY && send(response, 401, '{"detail":"Unauthorized"}');
	return opened.use(await FakeAgentServer.start(requireKey, serve(of)));
}

function reconcileWith(env: Readonly<Record<string, string>>, { url }: FakeAgentServer, ...args: readonly string[]) {
	return ServiceProcess.run(env, "reconcile", "--agent-server", url.href, ...args);
}

describe("the command reconcile", () => {
	test("fetches beside a running service and without one, and reports", async () => {
		using folder = new TempFolder();
		const database = folder.file("conversations.db");
		const env = { ...testEnvironment(database), AGENT_SERVER_KEY: SESSION_KEY };
		const server = await agentServer();
		const gone = "11111111-1111-4111-8111-111111111111";
		{
			await using service = await ServiceProcess.start(database);
			const record = { ...conversations[0]?.record, id: gone };
			expect((await postWebhook(service, KEY, JSON.stringify(record))).status).toBe(200);
			const { code, stdout } = await reconcileWith(env, server, "--sender", "test");
			expect({ code, stdout }).toEqual({
				code: 0,
				stdout: `${TAKEN_IN}, 0 gaps closed, 1 conversation no longer known to ${server.url.host}.\nno longer known: ${gone}\n`,
			});
			const line = await service.logged(({ event }) => event === "reconciled");
			expect(line).toMatchObject({ agentServer: server.url.host, events, records: conversations.length, gone: 1 });
			expect(service.output.stdout + service.output.stderr).not.toContain(SESSION_KEY);
			const [first] = conversations;
			const headers = { "X-Access-Token": KEY };
			const answer = await fetch(`${service.http}/api/v1/conversations/${first?.record.id}/events`, { headers });
			const listed = (first?.events ?? []).map((event) => ({ origin: "reconciled", sender: "test", event }));
			expect(await answer.json()).toMatchObject({ events: listed });
			// No listener of the network serves it: the caller chooses where requests go.
			const path = "/conversations.v1.ConversationReconcileService/StartReconciliation";
			const body = JSON.stringify({ agentServer: server.url.href });
			const json = { ...headers, "Content-Type": "application/json" };
			expect((await fetch(`${service.http}${path}`, { method: "POST", headers: json, body })).status).toBe(404);
			service.signal("SIGTERM");
			expect((await service.exit()).code).toBe(0);
		}
		expect((await reconcileWith(env, server)).stdout).toContain(
			`${SAME}, 0 gaps closed, 1 conversation no longer known`,
		);
	});

	test("says why it failed, without the key", async () => {
		using folder = new TempFolder();
		const database = folder.file("conversations.db");
		const env = testEnvironment(database);
		{
			await using service = await ServiceProcess.start(database);
			service.signal("SIGTERM");
			await service.exit();
		}
		const server = await agentServer();
		const wrong = await reconcileWith({ ...env, AGENT_SERVER_KEY: "another-key" }, server);
		expect(wrong).toMatchObject({ code: 1, stdout: "" });
		expect(wrong.stderr).toContain("The command reconcile failed: The agent server refuses the key (401)");
		expect(wrong.stderr).not.toContain("another-key");
		expect(await reconcileWith(env, server, "--sender", "nobody")).toMatchObject({
			code: 1,
			stderr: 'The command reconcile failed: No access key and no client certificate has the name "nobody"\n',
		});
		const bad = await ServiceProcess.run(env, "reconcile", "--agent-server", "http://user:secret@localhost");
		expect(bad.stderr).toContain("must be an http or https URL without user name");
		expect(bad.stderr).not.toContain("secret");
		expect((await ServiceProcess.run(env, "reconcile")).code).toBe(2);
	});
});

test("the service fetches by itself from the configured agent servers, and counts it", async () => {
	using folder = new TempFolder();
	const server = await agentServer();
	const env = {
		ACCESS_KEYS: `test:${KEY}:ingest+read+metrics`,
		RECONCILE_AGENT_SERVERS: `test=${server.url.href}`,
		RECONCILE_KEYS: `test=${SESSION_KEY}`,
	};
	await using service = await ServiceProcess.start(folder.file("conversations.db"), env);
	const line = await service.logged(({ event }) => event === "reconciled");
	expect(line).toMatchObject({ conversations: conversations.length, events, failures: 0 });
	const metrics = await (await fetch(`${service.http}/metrics`, { headers: { "X-Access-Token": KEY } })).text();
	const labels = `agent_server="${server.url.host}"`;
	expect(metrics).toContain(`conversations_reconcile_events_total{${labels}} ${events}`);
	expect(metrics).toContain(`conversations_reconcile_runs_total{${labels},result="complete"} 1`);
});

test("a service starts without the key of the configured name, and says so", async () => {
	using folder = new TempFolder();
	const server = await agentServer();
	const settings = { RECONCILE_AGENT_SERVERS: `nobody=${server.url.href}`, ACCESS_KEYS: `test:${KEY}:ingest+metrics` };
	await using service = await ServiceProcess.start(folder.file("conversations.db"), settings);
	expect(await service.logged(({ event }) => event === "reconcile_incomplete")).toMatchObject({
		error: { message: 'No access key and no client certificate has the name "nobody"' },
	});
	expect((await postWebhook(service, KEY, JSON.stringify(conversations[0]?.record))).status).toBe(200);
	expect(server.requests).toEqual([]);
});

test("a service starts and fetches also when the key of the configured name is revoked", async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const env = testEnvironment(database);
	const server = await agentServer();
	{
		await using service = await ServiceProcess.start(database);
		expect((await ServiceProcess.run(env, "keys", "add", "agent", "--owner", "red")).code).toBe(0);
		expect((await ServiceProcess.run(env, "keys", "revoke", "agent")).code).toBe(0);
		// The only key that may post is now that of the configuration.
		const { stdout } = await reconcileWith({ ...env, AGENT_SERVER_KEY: SESSION_KEY }, server);
		expect(stdout).toContain(`${TAKEN_IN}, 0 gaps closed, 0 conversations no longer known`);
		service.signal("SIGTERM");
		await service.exit();
	}
	const settings = { RECONCILE_AGENT_SERVERS: `agent=${server.url.href}`, RECONCILE_KEYS: `agent=${SESSION_KEY}` };
	await using again = await ServiceProcess.start(database, settings);
	// Its conversations would belong to the owner of that key.
	expect(await again.logged(({ event }) => event === "reconciled")).toMatchObject({ failures: conversations.length });
});
