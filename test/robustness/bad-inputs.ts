import { randomBytes } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { RecordFormat } from "../../src/record/record-format.ts";
import { type Endpoints, getText, readClient } from "../support/clients.ts";
import { allEvents } from "../support/event-clients.ts";
import { expectedJson } from "../support/expected-json.ts";
import type { Random } from "../support/random.ts";
import { KEY } from "../support/service.ts";
import { type InputKind, inputKinds } from "./input-kinds.ts";
import { type Report, unlessSilent } from "./report.ts";
import type { Run } from "./run.ts";
import { digits, type Stored } from "./stored.ts";
import { quiet, Subject } from "./subject.ts";

/** Number of inputs that are generated together, and number that are sent concurrently. */
const BATCH = 400;
const CONCURRENCY = 16;
/** Maximum resident memory of the service, in bytes. */
const MAX_MEMORY = 1024 ** 3;

const { plan } = new RecordFormat();

/** Ids of acknowledged conversations and events. */
type Acknowledged = Readonly<Record<Stored["what"], Set<string>>>;

/** Generated records, valid and invalid, and mutated bytes of real bodies, messages, frames and connections. */
export const badInputs: Run = {
	name: "bad-inputs",
	about: "generated records and queries, and changed bytes of real bodies, gRPC frames and connections",
	counted: "inputs",
	long: 100_000,
	short: 2_000,
	async run(count, random, report) {
		// With a key, secrets are stored, so that records can be read back as they were sent.
		const env = { ENCRYPTION_KEY: randomBytes(32).toString("base64") };
		await using subject = await Subject.start(report, env);
		const kinds = inputKinds(plan);
		const weights = kinds.reduce((sum, { weight }) => sum + weight, 0);
		const acknowledged: Acknowledged = { conversation: new Set(), event: new Set() };
		const load = async (): Promise<void> => {
			for (const kind of kinds) {
				const share = Math.ceil((count * kind.weight) / weights / 2);
				await sendAll(subject.service, kind, share, random, report, acknowledged);
			}
		};
		await subject.amongOrdinary(() => subject.untilSteady(load, quiet(count, badInputs), MAX_MEMORY));
		await expectStored(subject.service, acknowledged, report);
		await subject.expectSound();
	},
};

async function sendAll(
	service: Endpoints,
	kind: InputKind,
	count: number,
	random: Random,
	report: Report,
	acknowledged: Acknowledged,
): Promise<void> {
	using sender = kind.sender(service);
	for (let sent = 0; sent < count; sent += BATCH) {
		const numRuns = Math.min(BATCH, count - sent);
		const inputs = fc.sample(kind.inputs, { numRuns, seed: random.integer(0, 2 ** 31) });
		const rest = inputs.values();
		const lane = async (): Promise<void> => {
			for (const input of rest) {
				const answer = await unlessSilent(sender.send(input).catch(() => "closed"));
				report.answer(kind.name, answer, { sent: () => shown(input) });
				if (kind.valid && answer !== "200")
					report.breaks(`a valid record was answered with ${answer}: ${shown(input)}`);
				if (answer === "200" || answer === "OK") await keepAcknowledged(service, kind, input, acknowledged, report);
			}
		};
		await Promise.all(Array.from({ length: CONCURRENCY }, lane));
	}
}

/** Records the ids of an acknowledged input. A valid record must be readable without any difference. */
async function keepAcknowledged(
	service: Endpoints,
	kind: InputKind,
	input: Buffer,
	acknowledged: Acknowledged,
	report: Report,
): Promise<void> {
	try {
		for (const { what, id } of kind.stored?.(input) ?? []) acknowledged[what].add(id);
	} catch (error) {
		report.breaks(`what nobody can read was accepted (${String(error)}): ${shown(input)}`);
	}
	if (!kind.valid) return;
	const json = JSON.parse(input.toString());
	const read = await getText(service, KEY, json.id, "secrets=plaintext").catch((error: unknown) => String(error));
	const expected = expectedJson(plan, json);
	const same = read.startsWith("{") && isDeepStrictEqual(JSON.parse(read), expected);
	if (!same) report.breaks(`an acknowledged record is read as ${read}: ${shown(input)}`);
}

/** Reports acknowledged conversations and events that are not stored. */
async function expectStored(service: Endpoints, acknowledged: Acknowledged, report: Report): Promise<void> {
	report.figure(`acknowledged: ${acknowledged.conversation.size} conversations, ${acknowledged.event.size} events`);
	const client = readClient(service, "gRPC", KEY);
	const missing = new Set(acknowledged.conversation);
	let pageToken = "";
	do {
		const page = await client.listConversations({ pageSize: 1000, pageToken });
		for (const { summary } of page.conversations) missing.delete(digits(summary?.id ?? ""));
		pageToken = page.nextPageToken;
	} while (pageToken !== "");
	for (const id of missing) report.breaks(`the conversation ${id} was acknowledged and is not stored`);
	const events = new Set((await allEvents(service, KEY)).map(({ event }) => event?.id));
	for (const id of acknowledged.event)
		if (!events.has(id)) report.breaks(`the event ${id} was acknowledged and is not stored`);
}

/** Returns an input in a form from which it can be sent again: as text if it is UTF-8, otherwise in base64. */
function shown(input: Buffer): string {
	const text = input.toString();
	return Buffer.from(text).equals(input) ? text : `base64 ${input.toString("base64")}`;
}
