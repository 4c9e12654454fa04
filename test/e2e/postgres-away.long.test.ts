import { once } from "node:events";
import { createServer } from "node:net";
import { Code, ConnectError } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Databases } from "../store/postgres/databases.ts";
import { ServiceProcess } from "../support/child.ts";
import { getText, ingestClient, postWebhook, readClient } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { expectReady } from "../support/ready.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY, testEnvironment } from "../support/service.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";

let databases: Databases;
let url: string;
beforeAll(async () => {
	databases = await Databases.start();
	url = await databases.create();
});
afterAll(() => databases[Symbol.asyncDispose]());

function expectNoPassword({ output: { stdout, stderr } }: ServiceProcess): void {
	expect(stdout + stderr).not.toContain(databases.server.password);
}

/** Returns the URL of the database through a proxy. */
function throughProxy({ port }: TcpProxy): string {
	return url.replace(`:${databases.server.port}/`, `:${port}/`);
}

async function post(service: ServiceProcess, json: ReturnType<typeof record>) {
	const response = await postWebhook(service, KEY, JSON.stringify(json));
	return { status: response.status, retryAfter: response.headers.get("Retry-After"), body: await response.json() };
}

const accepted = { status: 200, retryAfter: null, body: { success: true } };

async function codeOf(call: Promise<unknown>): Promise<Code | undefined> {
	return await call.then(
		() => undefined,
		(error: unknown) => ConnectError.from(error).code,
	);
}

test("while its database is down, a service is not ready and refuses requests, then it recovers by itself", async () => {
	await using service = await ServiceProcess.start("", { DATABASE_URL: url });
	const [first, second] = [record(), record()];
	expect(await post(service, first)).toEqual(accepted);
	await expectReady(service, true);
	await databases.server.stop("immediate");
	await expectReady(service, false);
	// The responses arrive while the database is still down.
	const refused = {
		status: 503,
		retryAfter: "5",
		body: { detail: expect.stringContaining("no server of the database accepts writes") },
	};
	expect(await post(service, second)).toEqual(refused);
	expect(await codeOf(ingestClient(service, "gRPC", KEY).ingestConversation(ingestRequest(second)))).toBe(
		Code.Unavailable,
	);
	expect(await codeOf(readClient(service, "gRPC", KEY).listConversations({}))).toBe(Code.Unavailable);
	await expect(getText(service, KEY, first.id)).rejects.toThrow("503");
	await databases.server.start();
	await expectReady(service, true);
	expect(await post(service, second)).toEqual(accepted);
	for (const { id } of [first, second]) expect(JSON.parse(await getText(service, KEY, id))).toMatchObject({ id });
	await service.logged((line) => line.event === "store_unhealthy");
	await service.logged((line) => line.event === "store_healthy");
	service.signal("SIGTERM");
	expect(await service.exit()).toEqual({ code: 0, signal: null });
	expectNoPassword(service);
});

test("while its database is down, a service stops with exit code 0, and a start fails with the reason in one line", async () => {
	await using service = await ServiceProcess.start("", { DATABASE_URL: url });
	await databases.server.stop("fast");
	await expectReady(service, false);
	service.signal("SIGTERM");
	expect(await service.exit()).toEqual({ code: 0, signal: null });
	expectNoPassword(service);
	const { code, stderr, stdout } = await ServiceProcess.run({ ...testEnvironment(""), DATABASE_URL: url }, "serve");
	await databases.server.start();
	expect({ code, stderr }).toEqual({
		code: 1,
		stderr: expect.stringMatching(/^The service cannot start: no server of the database accepts writes.*\n$/),
	});
	expect(stdout + stderr).not.toContain(databases.server.password);
});

test("a service whose database no longer responds stops with exit code 0, and answers the waiting post with 503", async () => {
	// A server that accepts connections and never responds.
	const silent = createServer().listen(0, "127.0.0.1");
	await once(silent, "listening");
	const address = silent.address();
	if (typeof address !== "object" || address === null) throw new Error("the silent server has no port");
	let isSilent = false;
	await using proxy = await TcpProxy.start(() => (isSilent ? address.port : databases.server.port));
	const env = { DATABASE_URL: throughProxy(proxy), POSTGRES_STATEMENT_TIMEOUT: "1" };
	await using service = await ServiceProcess.start("", env);
	expect(await post(service, record())).toEqual(accepted);
	isSilent = true;
	proxy.fallSilent();
	const json = record();
	const answer = post(service, json);
	await service.logged((line) => line.event === "store_unhealthy");
	service.signal("SIGTERM");
	expect(await answer).toMatchObject({ status: 503, retryAfter: "5" });
	expect(await service.exit()).toEqual({ code: 0, signal: null });
	silent.close();
	expectNoPassword(service);
});
