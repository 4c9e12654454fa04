import { UpdateMaker } from "../conversations/ingest/update-maker.ts";
import { ServiceError } from "../errors.ts";
import { RecordFormat } from "../record/record-format.ts";
import { RecordVault } from "../record/secrets/record-vault.ts";
import type { EncodedUpdate } from "../store/encoded-update.ts";
import { failureOf } from "../threads/failure.ts";
import type { Answer } from "../threads/messages.ts";
import { serve } from "../threads/worker.ts";
import type { IntakeAnswer, IntakeData, IntakeRequest } from "./messages.ts";

/** The thread that turns what arrives into updates. */

serve<IntakeData, IntakeRequest>(({ encryptionKeys }) => {
	const format = new RecordFormat();
	const maker = new UpdateMaker(format, new RecordVault(format, encryptionKeys));
	return {
		answer(requests, post) {
			post(
				requests.map(({ request: { kind }, parts: [received] }) => {
					if (kind === "close") return { value: undefined };
					if (received === undefined) throw new TypeError("a request has a body");
					const { buffer, byteOffset, byteLength } = received;
					const body = Buffer.from(buffer, byteOffset, byteLength);
					return answerOf(() => (kind === "json" ? maker.fromJson(body) : maker.fromRequest(body)));
				}),
			);
		},
	};
});

function answerOf(make: () => EncodedUpdate): Answer {
	try {
		return { value: undefined, parts: make() };
	} catch (error) {
		if (!(error instanceof ServiceError)) return { failure: failureOf(error) };
		const { kind, message, violations } = error;
		const value: IntakeAnswer = { kind, message, violations };
		return { value };
	}
}
