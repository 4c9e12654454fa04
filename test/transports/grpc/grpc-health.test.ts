import { Client, credentials } from "@grpc/grpc-js";
import { expect, test } from "vitest";
import { SERVICES } from "../../../src/rpc/services.ts";
import { listenBare } from "./bare-listener.ts";

const [SERVING, NOT_SERVING] = [1, 2];

test("every service has the health that was set, and a health watch receives changes until the stop", async () => {
	const listener = await listenBare();
	const client = new Client(`127.0.0.1:${listener.address.port}`, credentials.createInsecure());
	const identity = (bytes: Buffer) => bytes;
	const statusOf = (name: string) =>
		new Promise<number | undefined>((resolve, reject) => {
			const question = Buffer.from([0x0a, name.length, ...Buffer.from(name)]);
			client.makeUnaryRequest("/grpc.health.v1.Health/Check", identity, identity, question, (error, answer) => {
				if (error === null) resolve(answer?.[1]);
				else reject(error);
			});
		});
	const names = ["", ...SERVICES.map(({ typeName }) => typeName)];
	const statuses = () => Promise.all(names.map(statusOf));

	expect(await statuses()).toEqual(names.map(() => SERVING));
	listener.setServing(false);
	expect(await statuses()).toEqual(names.map(() => NOT_SERVING));
	listener.setServing(true);
	expect(await statuses()).toEqual(names.map(() => SERVING));

	// A watch of the health receives each change, and ends when the listener stops.
	const watch = client.makeServerStreamRequest("/grpc.health.v1.Health/Watch", identity, identity, Buffer.alloc(0));
	const received: number[] = [];
	watch.on("data", (answer: Buffer) => received.push(answer[1] ?? 0));
	const ended = new Promise((resolve) => watch.on("error", resolve));
	await new Promise<void>((resolve) => watch.once("data", () => resolve()));
	listener.setServing(false);
	await new Promise<void>((resolve) => watch.once("data", () => resolve()));
	await listener.stop(100, performance.now() + 10_000);
	await ended;
	client.close();
	expect(received).toEqual([SERVING, NOT_SERVING]);
});
