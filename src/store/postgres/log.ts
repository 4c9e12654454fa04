import { ServiceError } from "../../errors.ts";
import type { ThreadLogger } from "../../threads/worker-thread.ts";
import { Announcer, type LogListener, type LogTable, type NewestSequences } from "../sequence-log.ts";
import { bigint, type Row } from "../values.ts";
import { committed, settle } from "./citus.ts";
import { CHANNEL, type Connections } from "./connections.ts";
import { awaitCommit, type Query, type Session, type Transaction } from "./transaction.ts";

/** Returns the query that notifies other processes, if they are to be notified. */
export function notifyQueries(notifies: boolean, payload: string): Query[] {
	return notifies ? [{ name: "notify", text: `SELECT pg_notify('${CHANNEL}', $1)`, values: [payload] }] : [];
}

/**
 * Returns the sequences up to which later statements read all entries of the logs. Undefined without Citus: there the order of
 * sequences is the order in which entries become visible. With Citus, statements read each server at another moment. What the
 * transaction has seen on the coordinator until then, later statements see on the workers.
 *
 * @param conversationIds those that are read; left out for all
 */
export async function settledSequences(
	session: Session,
	conversationIds?: readonly string[],
): Promise<Positions | undefined> {
	if (!(await session.spread.isDistributed(session))) return undefined;
	// In this order: the commits for which it waits have sequences up to these, or later ones.
	const [[row] = [], , rows = []] = await session.query(POSITIONS, awaitCommit, committed);
	await settle(session, rows, conversationIds);
	return positionsFrom(row);
}

/** The newest sequences of both logs, and how often stored entries were given other owners or erased. */
export interface Positions extends NewestSequences {
	readonly rewrites: bigint;
}

const POSITIONS: Query = {
	name: "positions",
	text: "SELECT newest_update, newest_event, rewrites FROM conversation_updates.state",
};

/**
 * Writes the row of `state` as it is, so that the commit proves that the database can write, and waits for the standby.
 * It locks the row, so it is the last statement.
 */
export const touchState: Query = { text: "UPDATE conversation_updates.state SET rewrites = rewrites" };

export async function readPositions(session: Session): Promise<Positions> {
	const [[row] = []] = await session.query(POSITIONS);
	return positionsFrom(row);
}

function positionsFrom(row: Row | undefined): Positions {
	return {
		updates: bigint(row?.newest_update),
		events: bigint(row?.newest_event),
		rewrites: bigint(row?.rewrites),
	};
}

/**
 * Commits, and lets other processes know that stored entries have other owners. It locks the row of `state`, so it is the
 * last statement.
 *
 * @returns how often stored entries were rewritten
 */
export async function commitRewrite(transaction: Transaction, notifies: boolean): Promise<bigint> {
	const [[row] = []] = await transaction.commit(
		{ text: "UPDATE conversation_updates.state SET rewrites = rewrites + 1 RETURNING rewrites" },
		...notifyQueries(notifies, "rewritten"),
	);
	return bigint(row?.rewrites);
}

/** Announces entries that this process and others append. */
export class EntryAnnouncer {
	readonly #logger: ThreadLogger;
	readonly #readPositions: () => Promise<Positions>;
	readonly #announcers: Readonly<Record<LogTable, Announcer>>;
	#rewrites = 0n;
	#isLookingUp = false;
	/** Whether a notification or a poll came during the look-up in progress. */
	#mustLookUpAgain = false;

	/** @param readPositions rejects when the store is closed */
	constructor(connections: Connections, log: ThreadLogger, readPositions: () => Promise<Positions>) {
		this.#logger = log;
		this.#readPositions = readPositions;
		this.#announcers = { updates: new Announcer(log), events: new Announcer(log) };
		connections.listen((payload) => this.#onNotification(payload));
	}

	/** Subscribes a listener to a log. Returns a function that ends the subscription. */
	subscribe(log: LogTable, listener: LogListener): () => void {
		return this.#announcers[log].subscribe(listener);
	}

	/** Announces the newest sequences after a commit of this process. */
	announce({ updates, events }: NewestSequences): void {
		this.#announcers.updates.announce(updates);
		this.#announcers.events.announce(events);
	}

	/**
	 * Announces that entries have other owners, or were erased.
	 *
	 * @param changes number of such changes of the database
	 */
	announceRewrite(changes: bigint): void {
		if (changes <= this.#rewrites) return;
		this.#rewrites = changes;
		for (const announcer of Object.values(this.#announcers)) announcer.announceRewrite();
	}

	/**
	 * Handles a notification. That of an append has the newest sequences as its payload; undefined stands for notifications
	 * that may have been missed. Anyone who can connect to the database can send notifications, so this reads the newest sequences from the
	 * database before it announces them.
	 */
	#onNotification(payload: string | undefined): void {
		const [, updates, events] = /^(\d{1,19}) (\d{1,19})$/.exec(payload ?? "") ?? [];
		const known = this.#known();
		const isKnown =
			updates !== undefined &&
			events !== undefined &&
			BigInt(updates) <= known.updates &&
			BigInt(events) <= known.events;
		if (isKnown) return;
		if (this.#isLookingUp) this.#mustLookUpAgain = true;
		else void this.#lookUp();
	}

	async #lookUp(): Promise<void> {
		this.#isLookingUp = true;
		do {
			this.#mustLookUpAgain = false;
			// The known sequences were announced, and so committed, before the query starts. If it finds a smaller newest sequence,
			// commits have been lost.
			const known = this.#known();
			try {
				const { rewrites, ...newest } = await this.#readPositions();
				this.announceRewrite(rewrites);
				this.#announceFound("updates", newest, known);
				this.#announceFound("events", newest, known);
			} catch {
				// The next notification or poll looks again. Calls to the store report the failure of the database.
			}
		} while (this.#mustLookUpAgain);
		this.#isLookingUp = false;
	}

	#announceFound(log: LogTable, { [log]: newest }: NewestSequences, { [log]: known }: NewestSequences): void {
		if (newest < known) {
			const message = `the database has lost the entries after sequence ${newest}; the newest sequence was ${known}`;
			this.#logger.error({ err: new ServiceError("data_loss", message) }, "the database has lost commits");
			this.#announcers[log].announceLoss(newest);
		} else this.#announcers[log].announce(newest);
	}

	#known(): NewestSequences {
		return { updates: this.#announcers.updates.newest, events: this.#announcers.events.newest };
	}
}
