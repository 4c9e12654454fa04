import { createSecretKey, randomBytes } from "node:crypto";
import { create, type JsonObject, type JsonValue, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { IngestConversationRequestSchema } from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { EventFormat } from "../../../src/events/event-format.ts";
import { type CurrentRecord, RecordUpdater } from "../../../src/events/record-updater.ts";
import { STATE_UPDATE } from "../../../src/events/state-update.ts";
import { UpdateParser } from "../../../src/intake/record-intake.ts";
import { mergeRecord } from "../../../src/record/record-delta.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { RecordVault } from "../../../src/record/secrets/record-vault.ts";
import { RecordSchema } from "../../../src/record/validation/schema.ts";
import { REDACTED } from "../../../src/userinfo.ts";
import { jsonOf } from "../../support/arbitrary.ts";
import { corpus, object, record } from "../../support/fixtures.ts";
import { Inexpressible, messageOf } from "../../support/message.ts";
import { violationsOf } from "../../support/refusal.ts";
import { withManyFaults } from "../../support/with-one-change.ts";

const format = new RecordFormat();
const { plan } = format;
const schema = new RecordSchema(plan);
const keys = [createSecretKey(randomBytes(32))];
const vault = new RecordVault(format, keys);
const parser = new UpdateParser(format, vault);
const eventFormat = new EventFormat(format, keys, "UTC");

/** Valid records, and records with many faults. No value stands for a secret, because an event omits such a value. */
const real = fc.constantFrom(...corpus().map(({ json }): JsonValue => json));
const records = fc
	.oneof(jsonOf(plan), withManyFaults(jsonOf(plan)), withManyFaults(real))
	.filter((json) => !JSON.stringify(json).includes(REDACTED))
	.map(object);

/** Asserts a law about records, some of which are valid and some not. */
function holds(law: (json: JsonObject, valid: boolean) => void): void {
	const verdicts = new Set<boolean>();
	fc.assert(
		fc.property(records, (json) => {
			const valid = schema.isValid(json);
			verdicts.add(valid);
			law(json, valid);
		}),
		{ numRuns: 150 },
	);
	expect(verdicts).toEqual(new Set([true, false]));
}

function isAccepted(read: () => unknown): boolean {
	try {
		read();
		return true;
	} catch {
		expect(violationsOf(read)).not.toEqual([]);
		return false;
	}
}

/** Applies state updates to a record, and returns the JSON form of the record that results; undefined if none does. */
function applied(current: CurrentRecord, reports: readonly { readonly key: string; readonly value: JsonValue }[]) {
	const { id: conversationId = "" } = vault.open(current.record?.bytes ?? posted.record.bytes, "plaintext");
	const envelope = { timestamp: "2026-01-01T00:00:00", source: "environment", kind: STATE_UPDATE };
	const events = reports.map((report, index) => ({ ...envelope, id: String(index), ...report }));
	const { batch } = eventFormat.parse(conversationId, Buffer.from(JSON.stringify(events)));
	const updates = batch.events.map((event) => ({ event, happenedAt: event.happenedAt }));
	const updater = new RecordUpdater(format, vault, eventFormat);
	const { version, refused } = updater.apply({ conversationId, current, updates });
	const { record: base } = current;
	const bytes = version && (base === undefined ? version.record.bytes : mergeRecord(base.bytes, version.record.bytes));
	return { made: bytes && format.toJson(vault.open(bytes, "plaintext")), refused };
}

const posted = parser.fromJson(Buffer.from(JSON.stringify(record())));
const NO_RECORD: CurrentRecord = { memberTimes: undefined, postedAt: undefined, record: undefined };
/** Members that are not taken from events. */
const NOT_FROM_EVENTS = new Set(["id", "created_at", "updated_at", "leaf_event_id"]);

describe("whether a record is valid is what the compiled schema says, however many faults it has", () => {
	test("over the webhook", () => {
		holds((json, valid) => {
			expect(isAccepted(() => parser.fromJson(Buffer.from(JSON.stringify(json))))).toBe(valid);
		});
	});

	test("over gRPC", () => {
		holds((json, valid) => {
			try {
				const request = create(IngestConversationRequestSchema, { conversation: messageOf(plan, json) });
				const bytes = toBinary(IngestConversationRequestSchema, request);
				expect(isAccepted(() => parser.fromRequest(bytes))).toBe(valid);
			} catch (error) {
				if (!(error instanceof Inexpressible)) throw error;
			}
		});
	});

	test("as a first full state, which makes a valid record or none", () => {
		holds((json) => {
			const value = Object.fromEntries(Object.entries(json).filter(([name]) => !NOT_FROM_EVENTS.has(name)));
			const { made } = applied(NO_RECORD, [{ key: "full_state", value }]);
			expect(made !== undefined).toBe(schema.isValid({ ...value, id: posted.conversationId }));
			if (made !== undefined) expect(schema.isValid(made)).toBe(true);
		});
	});

	test("as state updates of one member each, which leave a valid record", () => {
		holds((json) => {
			const reports = plan.fields.flatMap((field) => {
				const value = json[field.name];
				// The state of the agent also reports other members.
				const isReported = value !== undefined && !NOT_FROM_EVENTS.has(field.name) && field.name !== "agent_state";
				return isReported ? [{ field, key: field.name, value }] : [];
			});
			const current = { ...NO_RECORD, postedAt: 0n, record: posted.record };
			const { made, refused } = applied(
				current,
				reports.map(({ key, value }) => ({ key, value })),
			);
			const wrong = reports.filter(({ field, value }) => !schema.accepts(field, value));
			expect(refused.map(({ member }) => member).sort()).toEqual(wrong.map(({ key }) => key).sort());
			if (made !== undefined) expect(schema.isValid(made)).toBe(true);
		});
	});
});

test.each([90, 99, 100, 101, 250])("of %d wrong elements in a nested list the first are reported", (count) => {
	const response_latencies = Array.from({ length: count }, () => "x");
	const json = record({ stats: { usage_to_metrics: { a: { response_latencies }, b: { response_latencies } } } });
	const places = violationsOf(() => format.fromJson(json)).map(({ path }) => path.join("."));
	const expected = ["a", "b"].flatMap((usage) =>
		response_latencies.map((_, index) => `stats.usage_to_metrics.${usage}.response_latencies.${index}`),
	);
	expect(places).toEqual(expected.slice(0, 100));
});
