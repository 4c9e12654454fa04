import { computed, effect, signal } from "@preact/signals";
import { zone } from "../parts/days.ts";
import { accessKey, takeKeyFromAddress } from "../service/session.ts";

/**
 * The address of the console is the fragment: `#/page/part?name=value`. So every view can be sent to someone, and the
 * service serves one page only.
 */
const address = signal(addressWithoutKey());

// Pages come back to where they were themselves, when their rows are there.
history.scrollRestoration = "manual";

addEventListener("hashchange", () => {
	address.value = addressWithoutKey();
});

/** Returns the present address. A key in it is taken before, so that no address that is made of this one has it. */
function addressWithoutKey(): string {
	takeKeyFromAddress();
	return location.hash;
}

/** The path of the address without empty parts, such as ["conversations", id]. */
export const path = computed(() => (address.value.slice(1).split("?")[0] ?? "").split("/").filter(Boolean).map(decode));

/** The parameters of the address. */
export const query = computed(() => new URLSearchParams(address.value.split("?")[1] ?? ""));

effect(() => {
	zone.value = query.value.get("zone") === "utc" ? "utc" : "local";
});

/** Returns the address of a view, for links. It keeps the time zone of the present one, if it does not name another. */
export function addressOf(parts: readonly string[], parameters: URLSearchParams | Record<string, string> = {}): string {
	const kept = new URLSearchParams(parameters);
	if (!kept.has("zone") && zone.value === "utc") kept.set("zone", "utc");
	else if (kept.get("zone") === "local") kept.delete("zone");
	const text = kept.toString();
	return `#/${parts.map(encodeURIComponent).join("/")}${text === "" ? "" : `?${text}`}`;
}

/** Goes to an address, in the present time zone. */
export function go(to: string): void {
	const [page = "", parameters] = to.slice(1).split("?");
	location.hash = addressOf(page.split("/").filter(Boolean).map(decode), new URLSearchParams(parameters));
}

/** Shows times in the viewer's zone, or in UTC. */
export function switchZone(): void {
	setQuery((next) => next.set("zone", zone.value === "utc" ? "local" : "utc"));
}

/** Address of the search that was shown last in this tab, or is shown now; undefined if there was none. */
export const lastSearch = signal<string | undefined>(undefined);

/** Address of the list that was shown last in this tab, or is shown now; undefined if there was none. */
export const lastList = signal<string | undefined>(undefined);

let keyOfLast = accessKey.value;
effect(() => {
	// Who comes with another key does not go on with the words and filters of the one before.
	if (accessKey.value !== keyOfLast) {
		keyOfLast = accessKey.value;
		lastSearch.value = undefined;
		lastList.value = undefined;
	}
	const [page = "conversations", id] = path.value;
	if (page === "search") lastSearch.value = address.value;
	if (page === "conversations" && id === undefined) lastList.value = address.value;
});

/** Changes parameters of the present address without a new entry in the browser's history. */
export function setQuery(change: (parameters: URLSearchParams) => void): void {
	const next = new URLSearchParams(query.value);
	change(next);
	replaceQuery(next);
}

/** Replaces all parameters of the present address without a new entry in the browser's history. */
export function replaceQuery(next: URLSearchParams): void {
	history.replaceState(null, "", addressOf(path.value.length === 0 ? ["conversations"] : path.value, next));
	address.value = location.hash;
}

function decode(part: string): string {
	try {
		return decodeURIComponent(part);
	} catch {
		return part;
	}
}
