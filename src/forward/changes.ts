import { UpdateChange, UpdateChangeSchema } from "../../gen/conversations/v1/update_pb.js";

/** What is told without an update, with the types of the deliveries: see `notices.ts`. */
const NOTICES = { GAP: "conversation.gap", BUDGET: "budget.threshold", SILENT: "conversation.silent" } as const;
export type NoticeChange = keyof typeof NOTICES;

/** What endpoints can be told of, by the names in the API, with the types of the deliveries. */
export const CHANGES: ReadonlyMap<string, string> = new Map([
	...UpdateChangeSchema.values
		.filter(({ number }) => number !== UpdateChange.UNSPECIFIED)
		.map(({ localName }) => [localName, `conversation.${localName.toLowerCase()}`] as const),
	...Object.entries(NOTICES),
]);

/** The type of a delivery that someone asked for, which no endpoint needs to want. */
export const TEST_CHANGE = "TEST";

/** Returns the type of deliveries of a change. */
export function typeOf(change: string): string {
	return change === TEST_CHANGE ? "endpoint.test" : (CHANGES.get(change) ?? "conversation.updated");
}

/** Returns the name of the change of an update. */
export function changeOf(change: UpdateChange): string {
	return UpdateChange[change];
}
