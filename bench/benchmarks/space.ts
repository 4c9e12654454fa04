import { statSync } from "node:fs";
import { readConfig } from "../../src/config/config.ts";
import { EventFormat } from "../../src/events/event-format.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { batchTexts } from "../../test/support/event-batches.ts";
import type { Benchmark } from "../benchmark.ts";
import type { Figure } from "../figures.ts";
import { DatabaseServer, sqlOn } from "../processes/database-server.ts";
import { DiskFolder } from "../processes/service.ts";

/** Number of times that the captured events are stored, each time in other conversations. */
const COPIES = 20;
/** Maximum size of an event on disk in bytes, with the indexes of its table. */
const AIM = 700;

/** Stores the captured batches of events. Returns the number of stored events and the bytes of their texts. */
async function fill(store: Store): Promise<{ events: number; bytes: number }> {
	const format = new EventFormat(new RecordFormat(), [], "UTC");
	const stored = { events: 0, bytes: 0 };
	for (let copy = 0; copy < COPIES; copy++)
		for (const [index, [, text]] of batchTexts().entries()) {
			const id = `${String(copy).padStart(8, "0")}-0000-4000-8000-${String(index).padStart(12, "0")}`;
			const { batch } = format.parse(id, Buffer.from(text));
			const bytes = batch.events.reduce((sum, event) => sum + event.text.byteLength, 0);
			const appended = await store.appendEvents(batch);
			if (appended?.stored !== batch.events.length) throw new Error("a batch was not stored");
			stored.events += batch.events.length;
			stored.bytes += bytes;
		}
	return stored;
}

export const space: Benchmark = {
	name: "space",
	about: `size of an event on disk, ${COPIES} times the captured events, one batch after the other`,
	async run(settings, report) {
		await using folder = await DiskFolder.create(settings.folder);
		await using server = await DatabaseServer.start(settings.folder);
		const figures: Figure[] = [];
		for (const url of [folder.database, await server.create()]) {
			const { database } = readConfig({ DATABASE_URL: url, ACCESS_KEYS: "bench:0123456789abcdef" });
			const store = await openStore(database, { error: (fields) => report(JSON.stringify(fields)) }, {});
			const { events, bytes } = await fill(store).finally(() => store.close());
			const size =
				database.engine === "sqlite" ? statSync(database.path).size : Number((await sqlOn(url, SIZE))[0]?.size);
			const note = `${events} events of ${Math.round(bytes / events)} bytes of text`;
			const name = `space, ${database.engine}`;
			figures.push({ name, value: size / events, unit: "bytes", target: { at: "most", value: AIM }, note });
		}
		return figures;
	},
};

const SIZE = `
	SELECT sum(pg_total_relation_size(oid)) AS size FROM pg_class
	WHERE relnamespace = 'conversation_updates'::regnamespace AND relkind = 'r'
`;
