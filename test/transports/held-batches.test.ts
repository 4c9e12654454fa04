import { create, toBinary, toJsonString } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { HeartbeatSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import { SharedResponse } from "../../src/conversations/watch/shared-response.ts";
import { ServiceError } from "../../src/errors.ts";
import { Admission } from "../../src/transports/admission.ts";
import { HeldBatches, lengthPrefixed } from "../../src/transports/stream-messages.ts";

const heartbeat = create(HeartbeatSchema, { latestSequence: 2n ** 62n });
const BYTES = toBinary(HeartbeatSchema, heartbeat).byteLength;
const JSON_BYTES = Buffer.from(toJsonString(HeartbeatSchema, heartbeat));
const batchOf = (count: number) =>
	Array.from({ length: count }, () => new SharedResponse(HeartbeatSchema, 1n, () => heartbeat));

function limited(bytes: number) {
	const admission = new Admission(0, { watch: { requests: 10, bytes } });
	return { held: new HeldBatches(admission), bytes: () => admission.underWay("watch").bytes };
}

test("a batch counts once for all clients that hold it, until the last of them releases it", () => {
	const { held, bytes } = limited(1000);
	const batch = batchOf(3);
	const [first, second] = [held.hold(batch, "bytes"), held.hold(batch, "bytes")];
	expect(second.chunks).toBe(first.chunks);
	expect(Buffer.concat(first.chunks)).toEqual(Buffer.concat(lengthPrefixed(batch.map((one) => one.bytes))));
	expect(bytes()).toBe(3 * BYTES);
	first.release();
	first.release();
	expect(bytes()).toBe(3 * BYTES);
	second.release();
	expect(bytes()).toBe(0);
});

test("the JSON form of a batch counts by its own bytes", () => {
	const { held, bytes } = limited(1000);
	const batch = batchOf(1);
	const binary = held.hold(batch, "bytes");
	const json = held.hold(batch, "json");
	expect(Buffer.concat(json.chunks)).toEqual(Buffer.concat(lengthPrefixed([JSON_BYTES])));
	expect(bytes()).toBe(BYTES + JSON_BYTES.byteLength);
	json.release();
	binary.release();
	expect(bytes()).toBe(0);
});

test("a batch without room is refused until another one is released, and a single one may pass the limit", () => {
	const { held } = limited(2 * BYTES - 1);
	const large = held.hold(batchOf(3), "bytes");
	const refusal = expect.objectContaining({
		kind: "rate_limited",
		message: "Too many bytes wait for watches that are not read; continue after the last sequence number",
	});
	expect(() => held.hold(batchOf(1), "bytes")).toThrow(ServiceError);
	expect(() => held.hold(batchOf(1), "bytes")).toThrow(refusal);
	large.release();
	held.hold(batchOf(1), "bytes");
	expect(() => held.hold(batchOf(1), "bytes")).toThrow(refusal);
});

test("a length-prefixed message consists of a zero, four bytes of length, and the message", () => {
	const messages = [Uint8Array.of(7, 8), Uint8Array.of(), new Uint8Array(258).fill(9)];
	const [bytes = new Uint8Array(), ...others] = lengthPrefixed(messages);
	expect(others).toEqual([]);
	expect([...bytes.subarray(0, 20)]).toEqual([0, 0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 9, 9, 9]);
	expect(bytes.length).toBe(3 * 5 + 2 + 258);
});

test("a large message is a chunk of its own and is not copied", () => {
	const large = new Uint8Array(16 * 1024);
	const chunks = lengthPrefixed([Uint8Array.of(7), large, Uint8Array.of(9)]);
	expect(chunks.map((chunk) => (chunk === large ? "large" : [...chunk]))).toEqual([
		[0, 0, 0, 0, 1, 7, 0, 0, 0, 64, 0],
		"large",
		[0, 0, 0, 0, 1, 9],
	]);
});
