import { create, fromBinary, type JsonValue, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { IngestConversationRequestSchema } from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { UpdateParser } from "../../../src/intake/record-intake.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { RecordVault } from "../../../src/record/secrets/record-vault.ts";
import { jsonOf } from "../../support/arbitrary.ts";
import { cases, corpus } from "../../support/fixtures.ts";
import { Inexpressible, messageOf } from "../../support/message.ts";
import { summaryOf, violationsOf } from "../../support/refusal.ts";
import { withManyFaults, withOneChange } from "../../support/with-one-change.ts";

const format = new RecordFormat();
const { plan } = format;
const parser = new UpdateParser(format, new RecordVault(format, []));

/** Returns the places and the types of the violations for which a record is refused. */
function refusalOf(read: () => unknown): readonly string[] | "accepted" {
	try {
		return summaryOf(
			violationsOf(() => {
				read();
				throw new Accepted();
			}),
		);
	} catch (error) {
		if (error instanceof Accepted) return "accepted";
		throw error;
	}
}

class Accepted extends Error {}

function expressed(json: JsonValue): ConversationInfo | undefined {
	try {
		const message = messageOf(plan, json);
		return isReadable(message) ? message : undefined;
	} catch (error) {
		if (error instanceof Inexpressible) return undefined;
		throw error;
	}
}

/** Returns whether a protobuf parser accepts the message. It rejects one that is nested too deeply. */
function isReadable(message: ConversationInfo): boolean {
	try {
		fromBinary(ConversationInfoSchema, toBinary(ConversationInfoSchema, message));
		return true;
	} catch {
		return false;
	}
}

const table = cases()
	.filter(({ status, body, headers }) => status.includes(422) && body !== undefined && headers === undefined)
	.flatMap(({ name, body = null, status }) => {
		const conversation = expressed(body);
		return conversation === undefined ? [] : [{ name, body, conversation, certain: status.length === 1 }];
	});

function refusals(body: JsonValue, conversation: ConversationInfo) {
	const bytes = toBinary(IngestConversationRequestSchema, create(IngestConversationRequestSchema, { conversation }));
	return {
		byWebhook: refusalOf(() => parser.fromJson(Buffer.from(JSON.stringify(body)))),
		byRpc: refusalOf(() => parser.fromRequest(bytes)),
	};
}

describe("the webhook and the RPCs refuse a record with the same violations", () => {
	test("for a table of over 40 records", () => {
		expect(table.length).toBeGreaterThan(40);
	});

	test.each(table)("$name", ({ body, conversation, certain }) => {
		const { byWebhook, byRpc } = refusals(body, conversation);
		if (certain) expect(byWebhook).not.toBe("accepted");
		expect(byRpc).toEqual(byWebhook);
	});

	test("for any record, of which one or many values are wrong", () => {
		const real = fc.constantFrom(...corpus().map(({ json }): JsonValue => json));
		const all = fc.oneof(jsonOf(plan), real);
		let refused = 0;
		fc.assert(
			fc.property(fc.oneof(withOneChange(all), withManyFaults(all)), (body) => {
				const conversation = expressed(body);
				if (conversation === undefined) return;
				const { byWebhook, byRpc } = refusals(body, conversation);
				if (byWebhook !== "accepted") refused += 1;
				expect(byRpc).toEqual(byWebhook);
			}),
			{ numRuns: 1000 },
		);
		expect(refused).toBeGreaterThan(30);
	});
});
