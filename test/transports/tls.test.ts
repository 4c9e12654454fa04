import { once } from "node:events";
import { copyFileSync, rmSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { request as httpsRequest } from "node:https";
import { connect } from "node:tls";
import { Client, credentials, Metadata, status } from "@grpc/grpc-js";
import { afterAll, afterEach, expect, test } from "vitest";
import { Certificates } from "../support/certificates.ts";
import { WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const certificates = new Certificates();
afterAll(() => certificates[Symbol.dispose]());
const pem = (name: string) => certificates.pem(name);
const ca = pem("ca.crt");
const SERVER = { TLS_CERT_FILE: certificates.path("server.crt"), TLS_KEY_FILE: certificates.path("server.key") };
const LIST = "/conversations.v1.ConversationService/ListConversations";
const HEALTH = "/grpc.health.v1.Health/Check";

/** Returns a client certificate with its private key. */
const holder = (name: string) => ({ cert: pem(`${name}.crt`), key: pem(`${name}.key`) });
type Holder = ReturnType<typeof holder>;

let service: TestService | undefined;

afterEach(async () => {
	await service?.[Symbol.asyncDispose]();
	service = undefined;
});

function portOf({ http }: TestService): number {
	return Number(new URL(http).port);
}

/** Posts to the webhook over HTTP/1.1 and TLS. Returns the status, or `refused` if the connection fails. */
function post(
	to: TestService,
	given: { key?: string; sessionKey?: string; holder?: Holder | undefined },
): Promise<unknown> {
	const headers = {
		"Content-Type": "application/json",
		...(given.key !== undefined && { "X-Access-Token": given.key }),
		...(given.sessionKey !== undefined && { "X-Session-API-Key": given.sessionKey }),
	};
	return new Promise((resolve) => {
		const options = { host: "127.0.0.1", port: portOf(to), path: WEBHOOK, method: "POST", headers, ca, agent: false };
		const request = httpsRequest({ ...options, ...given.holder }, (response) => resolve(response.resume().statusCode));
		request.on("error", () => resolve("refused"));
		request.end(JSON.stringify(record()));
	});
}

/** Calls a method with an empty request over gRPC and TLS. Returns the status. */
async function call(
	to: TestService,
	path: string,
	given: { key?: string; sessionKey?: string; holder?: Holder | undefined },
): Promise<number> {
	const { cert = null, key = null } = given.holder ?? {};
	const client = new Client(to.grpc, credentials.createSsl(ca, key, cert), {
		"grpc.use_local_subchannel_pool": 1,
		"grpc.ssl_target_name_override": "localhost",
	});
	const metadata = new Metadata();
	if (given.key !== undefined) metadata.set("x-access-token", given.key);
	if (given.sessionKey !== undefined) metadata.set("x-session-api-key", given.sessionKey);
	const identity = (bytes: Buffer) => bytes;
	try {
		return await new Promise((resolve) => {
			client.makeUnaryRequest(path, identity, identity, Buffer.alloc(0), metadata, (error) =>
				resolve(error === null ? status.OK : error.code),
			);
		});
	} finally {
		client.close();
	}
}

test("both listeners serve TLS, the HTTP listener with HTTP/1.1 and HTTP/2", async () => {
	service = await startTestService(SERVER);
	expect(await post(service, { key: KEY })).toBe(200);
	expect(await call(service, LIST, { key: KEY })).toBe(status.OK);

	const session = connectHttp2(`https://127.0.0.1:${portOf(service)}`, { ca });
	const stream = session.request({ ":path": "/healthz" });
	const [headers] = await once(stream, "response");
	expect([session.alpnProtocol, headers[":status"]]).toEqual(["h2", 200]);
	session.destroy();
	await expect(fetch(service.http)).rejects.toThrow();
});

test("changed certificate files are loaded, and files that cannot be used are reported and not used", async () => {
	using folder = new TempFolder();
	const copy = (name: string, cert = true, key = true) => {
		if (key) copyFileSync(certificates.path(`${name}.key`), folder.file("tls.key"));
		if (cert) copyFileSync(certificates.path(`${name}.crt`), folder.file("tls.crt"));
	};
	copy("server");
	service = await startTestService({ TLS_CERT_FILE: folder.file("tls.crt"), TLS_KEY_FILE: folder.file("tls.key") });
	const port = portOf(service);
	const name = async () => {
		const socket = connect({ host: "127.0.0.1", port, ca });
		await once(socket, "secureConnect");
		const { CN } = socket.getPeerCertificate().subject;
		socket.destroy();
		return CN;
	};
	expect(await name()).toBe("server");
	const { log } = service;
	copy("renewed", false);
	const refusals = () => [...log().matchAll(/"event":"certificates_refused","listener":"http".*?"message":"([^"]*)"/g)];
	await expect
		.poll(() => refusals().map(([, why]) => why), { timeout: 30_000 })
		.toEqual([expect.stringMatching(/mismatch/)]);
	expect(await name()).toBe("server");
	rmSync(folder.file("tls.key"));
	await expect.poll(() => refusals().at(-1)?.[1], { timeout: 30_000 }).toContain(folder.file("tls.key"));
	expect(await name()).toBe("server");
	copy("renewed");
	await expect.poll(name, { timeout: 30_000 }).toBe("renewed");
	await expect.poll(log, { timeout: 30_000 }).toContain('"event":"certificates_taken"');
});

test("with a client CA, a client certificate is required, and its name may have scopes", async () => {
	const started = await startTestService({
		...SERVER,
		TLS_CLIENT_CA_FILE: certificates.path("ca.crt"),
		CLIENT_CERTIFICATES: "agent-1:ingest,spiffe://test/workload:read",
	});
	service = started;
	expect(await post(service, { key: KEY })).toBe("refused");
	expect(await post(service, { key: KEY, holder: holder("foreign") })).toBe("refused");
	expect(await call(service, LIST, { key: KEY })).toBe(status.UNAVAILABLE);

	expect(await post(service, { holder: holder("agent") })).toBe(200);
	expect(await call(service, LIST, { holder: holder("workload") })).toBe(status.OK);
	expect(await call(service, LIST, { holder: holder("agent") })).toBe(status.PERMISSION_DENIED);
	expect(await post(service, { holder: holder("stranger") })).toBe(401);
	// If the request has a key, the key decides.
	expect(await post(service, { holder: holder("stranger"), key: KEY })).toBe(200);
	expect(await post(service, { holder: holder("agent"), key: "wrong-key-of-some-length" })).toBe(401);
	// An agent server sends its own session key with each post.
	const sessionKey = "session-key-of-an-agent-server";
	expect(await post(service, { holder: holder("agent"), sessionKey })).toBe(200);
	expect(await call(service, LIST, { holder: holder("workload"), sessionKey })).toBe(status.OK);
	expect(await post(service, { holder: holder("stranger"), sessionKey })).toBe(401);
	expect(await call(service, LIST, { holder: holder("stranger"), sessionKey })).toBe(status.UNAUTHENTICATED);
	const unknownName =
		"The name of the client certificate is not in CLIENT_CERTIFICATES, and the request has no valid access key";
	for (const transport of ["http", "grpc"])
		await expect
			.poll(() => started.log().split("\n"))
			.toContainEqual(expect.stringMatching(new RegExp(`"transport":"${transport}".*${unknownName}`)));
	expect(started.log()).not.toContain("The access key is missing");
	expect(await post(service, { holder: holder("stranger"), sessionKey: KEY })).toBe(200);
	expect(await call(service, HEALTH, { holder: holder("stranger") })).toBe(status.OK);
	// A refused request is logged with the name of its client certificate as the caller.
	expect(started.log()).toMatch(/"caller":"agent-1".*"kind":"permission_denied"/);
});

test("a start with a TLS file that cannot be read fails and names the file", async () => {
	await expect(startTestService({ ...SERVER, TLS_CERT_FILE: "/nowhere.crt" })).rejects.toMatchObject({
		message: "the TLS files cannot be used",
		cause: expect.objectContaining({ path: "/nowhere.crt" }),
	});
});

test("a listener that other machines can reach without TLS logs one warning", async () => {
	service = await startTestService({ HTTP_ADDRESS: "0.0.0.0:0" });
	const lines = service
		.log()
		.split("\n")
		.filter((line) => line.includes('"event":"cleartext"'));
	expect(lines.map((line) => JSON.parse(line))).toMatchObject([{ level: "warn", listener: "http", host: "0.0.0.0" }]);
});
