import { UpdateMaker } from "../conversations/maker.ts";
import { RecordVault } from "../conversations/vault.ts";
import { ServiceError } from "../errors.ts";
import { RecordFormat } from "../record/record.ts";
import type { NewUpdate } from "../store/store.ts";
import { pack, unpack } from "../threads/bytes.ts";
import { failureOf } from "../threads/failure.ts";
import type { Answer } from "../threads/messages.ts";
import { serve } from "../threads/worker.ts";
import type { IntakeAnswer, IntakeData, IntakeRequest } from "./messages.ts";

/** The thread that turns what arrives into updates. */

const NO_DIGEST = new Uint8Array();

serve<IntakeData, IntakeRequest>(({ aliases, encryptionKeys }) => {
	const format = new RecordFormat(aliases);
	const maker = new UpdateMaker(format, new RecordVault(format.plan, encryptionKeys));
	return {
		answer({ requests, packed }, post) {
			const bytes = unpack(packed);
			post(
				requests.map(({ kind }) => {
					if (kind === "close") return { value: undefined };
					const body = bytes.next();
					if (body.done === true) throw new TypeError("a batch holds fewer bodies than requests");
					const { buffer, byteOffset, byteLength } = body.value;
					const received = Buffer.from(buffer, byteOffset, byteLength);
					return answerOf(() => (kind === "json" ? maker.fromJson(received) : maker.fromRequest(received)));
				}),
			);
		},
	};
});

function answerOf(make: () => NewUpdate): Answer {
	try {
		const { digest, record, summary, conversationId, columns, receivedAt, seal } = make();
		const value: IntakeAnswer = { update: { conversationId, columns, receivedAt, seal } };
		return { value, packed: pack([digest ?? NO_DIGEST, record, summary]) };
	} catch (error) {
		if (!(error instanceof ServiceError)) return { failure: failureOf(error) };
		const { kind, message, violations } = error;
		const value: IntakeAnswer = { refused: { kind, message, violations } };
		return { value };
	}
}
