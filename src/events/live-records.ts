import { create } from "@bufbuild/protobuf";
import { type ConversationInfo, ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { ServiceError, type Violation } from "../errors.ts";
import { type ExactJsonObject, readExactJson, tooManyValues } from "../record/json/exact-json.ts";
import { isJsonObject } from "../record/plan/plan.ts";
import { encodeDelta, mergeRecord } from "../record/record-delta.ts";
import type { RecordFormat } from "../record/record-format.ts";
import type { RecordVault } from "../record/secrets/record-vault.ts";
import type { SecretsForm } from "../record/secrets/secret-walk.ts";
import { encodeSummary, summarize } from "../record/summary.ts";
import { hasTooManyFields, MANY_FIELDS_FROM } from "../record/validation/message-size.ts";
import type { LiveVersion, ProtectedEvent, StoredRecord } from "../store/store.ts";
import { applyStatements, firstRecord, type RefusedStatement, type ToldTimes } from "./live-record.ts";
import { type StateUpdate, statementsOf } from "./statements.ts";

/** What state updates are applied to. Times are microseconds since the Unix epoch. */
export interface PresentRecord {
	/** As `LiveState.told` has it. */
	readonly told: string | undefined;
	/** As `LiveState.postedAt` has it. */
	readonly postedAt: bigint | undefined;
	/** The whole current record; undefined when there is none. */
	readonly record: StoredRecord | undefined;
}

/** State updates of one conversation that were not applied before, in the order of their arrival. */
export interface ApplyRequest {
	readonly conversationId: string;
	readonly present: PresentRecord;
	readonly updates: readonly { readonly event: ProtectedEvent; readonly happenedAt: bigint }[];
}

/** What state updates make of a record. */
export interface AppliedUpdates {
	readonly told: string;
	/** As `NewLiveState.version` has it: the whole record when there was none. */
	readonly version: LiveVersion | undefined;
	/** What was told and not applied, because it breaks the record's rules. */
	readonly refused: readonly RefusedStatement[];
}

/** Shows stored events. */
export interface EventOpener {
	/** @returns the JSON text of an event */
	open(conversationId: string, event: ProtectedEvent, form: SecretsForm): string;
}

/** Makes the next version of a conversation's record from what its events tell. */
export class LiveRecords {
	readonly #format: RecordFormat;
	readonly #vault: RecordVault;
	readonly #events: EventOpener;

	constructor(format: RecordFormat, vault: RecordVault, events: EventOpener) {
		this.#format = format;
		this.#vault = vault;
		this.#events = events;
	}

	/**
	 * Applies state updates to the present record, or makes the first one of them.
	 *
	 * @throws ServiceError `data_loss` when the present record, or an event, cannot be read or decrypted
	 */
	apply({ conversationId, present, updates }: ApplyRequest): AppliedUpdates {
		const opened = updates.map(({ event, happenedAt }) => this.#open(conversationId, event, happenedAt));
		const base = present.record?.bytes;
		if (base === undefined) {
			const first = firstRecord(conversationId, opened, this.#format.plan, (json) => this.#firstRecord(json));
			if (first === undefined) return { told: formatTold({}), version: undefined, refused: [] };
			const { change, summary } = this.#applyTo(first.record, first.told, opened);
			const version = { summary, record: this.#vault.protect(first.record) };
			return { told: formatTold(change.told.events), version, refused: change.refused };
		}
		const told: ToldTimes = { posted: present.postedAt, events: parseTold(present.told) };
		const { change, summary, changed } = this.#applyTo(this.#vault.open(base, "plaintext"), told, opened);
		const applied = { told: formatTold(change.told.events), version: undefined, refused: change.refused };
		if (change.changed.length === 0) return applied;
		try {
			const partial = this.#vault.protect(changed, conversationId);
			const bytes = encodeDelta(
				change.changed.map((member) => this.#fieldNumber(member)),
				partial.bytes,
			);
			const mayBeLarge = base.byteLength + bytes.byteLength >= MANY_FIELDS_FROM;
			if (mayBeLarge && hasTooManyFields(mergeRecord(base, bytes), ConversationInfoSchema)) throw tooManyValues();
			return { ...applied, version: { summary, record: { ...partial, bytes } } };
		} catch (error) {
			// Each member was within the bounds of a record, all of them together are not.
			const violations = violationsOf(error);
			const refused = change.changed.map((member) => ({ member, violations }));
			return { ...applied, told: formatTold(told.events), refused: [...change.refused, ...refused] };
		}
	}

	/** Changes a record in plain text to what statements say. */
	#applyTo(record: ConversationInfo, told: ToldTimes, updates: readonly StateUpdate[]) {
		const statements = statementsOf(updates);
		const names = new Set(["execution_status", ...statements.map(({ member }) => member)]);
		const present = this.#format.membersToJson(record, names);
		const parts = new Map<string, ConversationInfo>();
		const change = applyStatements(
			this.#format.plan,
			(member) => present[member],
			told,
			statements,
			(member, value) => {
				try {
					const part = this.#format.membersFromJson({ [member]: value });
					parts.set(member, part);
					return { value: this.#format.toJson(part)[member] };
				} catch (error) {
					return { violations: violationsOf(error) };
				}
			},
		);
		const changed = create(ConversationInfoSchema);
		for (const [member, part] of parts)
			if (change.changed.includes(member))
				for (const message of [record, changed]) this.#format.replaceMember(message, member, part);
		return { change, changed, summary: encodeSummary(summarize(record)) };
	}

	#open(conversationId: string, event: ProtectedEvent, time: bigint): StateUpdate {
		const json = readExactJson(this.#events.open(conversationId, event, "plaintext"));
		return { members: isJsonObject(json) ? json : {}, time };
	}

	#firstRecord(json: ExactJsonObject): ConversationInfo | undefined {
		try {
			return this.#format.fromJson(json);
		} catch (error) {
			violationsOf(error);
			return undefined;
		}
	}

	#fieldNumber(member: string): number {
		const field = this.#format.plan.members.get(member);
		if (field === undefined) throw new TypeError(`the record has no member ${member}`);
		return field.desc.number;
	}
}

/** The rules that a refused record breaks; any other error is thrown. */
function violationsOf(error: unknown): readonly Violation[] {
	if (error instanceof ServiceError && error.kind === "invalid_record") return error.violations;
	throw error;
}

/** Microseconds are written as text, because a JSON number does not hold all of them. */
function formatTold(events: ToldTimes["events"]): string {
	return JSON.stringify(Object.fromEntries(Object.entries(events).map(([member, time]) => [member, String(time)])));
}

function parseTold(told = "{}"): ToldTimes["events"] {
	const times: Record<string, string> = JSON.parse(told);
	return Object.fromEntries(Object.entries(times).map(([member, time]) => [member, BigInt(time)]));
}
