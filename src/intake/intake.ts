import { extname } from "node:path";
import type { Intake } from "../conversations/ingest/ingest.ts";
import { ServiceError } from "../errors.ts";
import { type EncodedUpdate, encodedUpdate } from "../store/encoded-update.ts";
import { Link, type LinkLog } from "../threads/link.ts";
import type { IntakeAnswer, IntakeData, IntakeRequest } from "./messages.ts";

/**
 * Makes updates on a thread of its own. Reading, checking and encoding a record take most of the time of an ingest;
 * there they use a second processor, and a large body holds up no other request, stream or probe.
 */
export class IntakeThread implements Intake, AsyncDisposable {
	readonly #link: Link<IntakeRequest>;

	private constructor(link: Link<IntakeRequest>) {
		this.#link = link;
	}

	/** Starts the thread. Resolves when it can take requests. */
	static async start(data: IntakeData, log: LinkLog): Promise<IntakeThread> {
		const link = new Link<IntakeRequest>({
			whole: "the intake",
			name: "intake",
			// `.ts` in src, `.js` in dist.
			script: new URL(`worker${extname(import.meta.url)}`, import.meta.url),
			data,
			// The message of an unforeseen error may quote a record.
			toError: () => new ServiceError("unavailable", "the intake failed"),
			log,
			batch: 32,
			batchBytes: 2 ** 20,
			ahead: 32,
			// The texts of large bodies wait here to be collected.
			youngGeneration: 12,
		});
		await link.start();
		return new IntakeThread(link);
	}

	fromJson(body: Buffer): Promise<EncodedUpdate> {
		return this.#send("json", body);
	}

	fromRequest(request: Uint8Array): Promise<EncodedUpdate> {
		return this.#send("request", request);
	}

	#send(kind: "json" | "request", bytes: Uint8Array): Promise<EncodedUpdate> {
		return this.#link.send({ kind }, outcomeOf, [bytes]);
	}

	/** Finishes what was sent, then ends the thread. */
	async [Symbol.asyncDispose](): Promise<void> {
		await this.#link.close({ kind: "close" });
	}
}

/** @throws ServiceError when the record was refused */
function outcomeOf(answer: IntakeAnswer, parts: readonly Uint8Array[]): EncodedUpdate {
	if (answer === undefined) return encodedUpdate(parts);
	const { kind, message, violations } = answer;
	throw new ServiceError(kind, message, { violations });
}
