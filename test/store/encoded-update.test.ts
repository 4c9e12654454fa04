import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decodeColumns, decodeHead, encodedUpdate, encodeUpdate } from "../../src/store/encoded-update.ts";
import type { NewUpdate } from "../../src/store/store.ts";
import { uuidText } from "../../src/store/uuid.ts";
import { bytes, sample } from "./samples.ts";

const text = fc.string({ unit: "grapheme" });
const time = fc.bigInt({ min: -(2n ** 63n) + 1n, max: 2n ** 63n - 1n });
const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });

const plain = { noNullPrototype: true };

const updates: fc.Arbitrary<NewUpdate> = fc.record(
	{
		conversationId: fc.uuid(),
		digest: optional(fc.uint8Array({ minLength: 1 })),
		seal: fc.maxSafeInteger(),
		record: fc.uint8Array(),
		summary: fc.uint8Array(),
		columns: fc.record(
			{
				status: text,
				agentKind: text,
				model: text,
				title: optional(text),
				parentId: optional(text),
				createdAt: optional(time),
				updatedAt: optional(time),
				tags: fc.dictionary(fc.oneof(text, fc.constantFrom("__proto__", "constructor")), text, plain),
			},
			plain,
		),
		receivedAt: time,
	},
	plain,
);

describe("an encoded update", () => {
	test("holds the whole update", () => {
		fc.assert(
			fc.property(updates, (update) => {
				const [head, record] = encodedUpdate(encodeUpdate(update));
				const { id, status, updatedAt, digest, summary, columns, receivedAt, seal } = decodeHead(head);
				expect({
					conversationId: uuidText(id),
					digest: digest.byteLength === 0 ? undefined : bytes(digest),
					seal,
					record,
					summary: bytes(summary),
					columns: { status, updatedAt, ...decodeColumns(columns) },
					receivedAt,
				}).toStrictEqual(update);
			}),
		);
	});

	test("is of a conversation with a lower-case UUID with dashes", () => {
		for (const conversationId of ["", "x", randomUUID().toUpperCase(), randomUUID().replaceAll("-", "")])
			expect(() => encodeUpdate(sample({ conversationId }))).toThrow(
				"the conversation id is not a lower-case UUID with dashes",
			);
	});

	test("has no time that the store could not keep", () => {
		const tooLate = 2n ** 63n;
		expect(() => encodeUpdate(sample({ columns: { createdAt: tooLate } }))).toThrow(RangeError);
		expect(() => encodeUpdate(sample({ columns: { updatedAt: tooLate } }))).toThrow(RangeError);
		expect(() => encodeUpdate(sample({ receivedAt: tooLate }))).toThrow(RangeError);
	});
});

test("what is no encoded update or no columns is refused", () => {
	expect(() => encodedUpdate([new Uint8Array()])).toThrow(new TypeError("an update has two byte strings"));
	expect(() => decodeColumns(Buffer.from("{}"))).toThrow(new TypeError("columns are an array"));
	expect(() => decodeColumns(Buffer.from('[1,"model",null,null,null,{}]'))).toThrow(
		new TypeError("a column is a text"),
	);
	expect(() => decodeColumns(Buffer.from('["Agent","model",null,null,null,null]'))).toThrow(
		new TypeError("tags are an object"),
	);
});
