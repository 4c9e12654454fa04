import { LRUCache } from "lru-cache";
import { LASTING_GAP, type OpenGaps, openGaps } from "../../store/gaps.ts";
import type { Store } from "../../store/store.ts";
import type { Logger } from "../../telemetry/log.ts";

/** Maximum number of conversations that are remembered, of each kind. One that is forgotten may be logged again. */
const MAX_CONVERSATIONS = 10_000;
/** Milliseconds between two looks at the conversations with gaps. */
const INTERVAL = 30_000;

interface GapLogOptions {
	readonly store: Pick<Store, "listGaps">;
	readonly logger: Pick<Logger, "conversationGaps">;
	/** Called when gaps could not be read; they are read again later. */
	readonly onError: (error: unknown) => void;
	/** When the process began, in milliseconds of Unix time. What was missing long before was logged by the one before. */
	readonly startedAt: number;
}

/** Logs that something has been missing of a conversation for {@link LASTING_GAP}, once for each. */
export class GapLog implements AsyncDisposable {
	readonly #options: GapLogOptions;
	readonly #logged = new LRUCache<string, true>({ max: MAX_CONVERSATIONS });
	/** When the gaps of conversations will have lasted long enough, in milliseconds of Unix time, by their ids. */
	readonly #due = new Map<string, number>();
	readonly #timer: NodeJS.Timeout;
	#checking: Promise<void> = Promise.resolve();

	constructor(options: GapLogOptions) {
		this.#options = options;
		this.#timer = setInterval(() => void this.check(), INTERVAL).unref();
	}

	/** @param gaps those of a result of an append; undefined without any */
	add(conversationId: string, gaps: OpenGaps | undefined): void {
		if (gaps === undefined || this.#due.has(conversationId) || this.#logged.has(conversationId)) return;
		const due = Number(gaps.since / 1000n) + LASTING_GAP;
		if (due < this.#options.startedAt) this.#logged.set(conversationId, true);
		else if (this.#due.size < MAX_CONVERSATIONS) this.#due.set(conversationId, due);
	}

	/**
	 * Logs the conversations whose gaps have lasted. Never rejects.
	 *
	 * @param now milliseconds of Unix time
	 */
	async check(now = Date.now()): Promise<void> {
		this.#checking = this.#checking.then(() => this.#check(now)).catch(this.#options.onError);
		await this.#checking;
	}

	async #check(now: number): Promise<void> {
		for (const [conversationId, due] of this.#due) {
			if (due > now) continue;
			const gaps = await this.#options.store.listGaps(conversationId);
			this.#due.delete(conversationId);
			const open = openGaps(gaps);
			if (open === undefined) continue;
			if (Number(open.since / 1000n) + LASTING_GAP > now) this.add(conversationId, open);
			else {
				this.#logged.set(conversationId, true);
				this.#options.logger.conversationGaps(conversationId, open);
			}
		}
	}

	async [Symbol.asyncDispose](): Promise<void> {
		clearInterval(this.#timer);
		await this.#checking;
	}
}
