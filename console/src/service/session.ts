import { computed, signal } from "@preact/signals";

/**
 * The access key. Each tab keeps it in its session storage and sends it as a header with each call. A tab without one
 * asks the open tabs of the same origin, which hand theirs over, so it is gone with the last tab.
 */

const STORAGE = "access-key";
/**
 * How often a person signed out: in the local storage, and beside the key of a tab when it took the key. A tab that was
 * asleep when the others were signed out finds another number when it wakes.
 */
const SIGN_OUTS = "sign-outs";

/** What tabs say to each other. */
type Message =
	| { readonly kind: "asks" }
	| { readonly kind: "has"; readonly key: string }
	/** All tabs end, or those with a key that the service refuses. */
	| { readonly kind: "ends"; readonly key?: string; readonly reason: string };

const tabs = new BroadcastChannel(`session of ${new URL(".", document.baseURI).pathname}`);

/** The access key; undefined until a person or another tab gives one. */
export const accessKey = signal<string | undefined>(keptKey());

/** Whether the service lets the tab in without a key, because the browser shows a client certificate. */
export const needsNoKey = signal(false);

/** Whether the tab can call the service. */
export const admitted = computed(() => accessKey.value !== undefined || needsNoKey.value);

/** Why the tab has no key any more; undefined when the person knows. */
export const signedOutBecause = signal<string | undefined>(undefined);

/** A key that arrived in the address while the tab has another one. The person decides which to use. */
export const offeredKey = signal<string | undefined>(undefined);

/** What a person reads in the other tabs after signing out in one. */
const SIGNED_OUT = "You signed out in another tab.";

/** Milliseconds for which a tab without a key waits for the others before it asks the person. */
const ANSWER_TIME = 300;

/** Whether the tab waits for the key of another one. */
export const asksTabs = signal(accessKey.value === undefined);

function keptKey(): string | undefined {
	const key = sessionStorage.getItem(STORAGE);
	return key === null || sessionStorage.getItem(SIGN_OUTS) !== signOuts() ? undefined : key;
}

function signOuts(): string {
	return localStorage.getItem(SIGN_OUTS) ?? "0";
}

function say(message: Message): void {
	tabs.postMessage(message);
}

tabs.addEventListener("message", ({ data }: MessageEvent<Message>) => {
	const key = accessKey.value;
	switch (data.kind) {
		case "asks":
			if (key !== undefined) say({ kind: "has", key });
			break;
		case "has":
			if (!admitted.value) take(data.key);
			break;
		case "ends":
			if (key !== undefined && (data.key === undefined || data.key === key)) forget(data.reason);
	}
});
// A page that the browser kept while the others were signed out.
addEventListener("pageshow", () => {
	if (accessKey.value !== undefined && keptKey() === undefined) forget(SIGNED_OUT);
});
if (asksTabs.value) {
	say({ kind: "asks" });
	setTimeout(() => {
		asksTabs.value = false;
	}, ANSWER_TIME);
}

function take(key: string): void {
	sessionStorage.setItem(STORAGE, key);
	sessionStorage.setItem(SIGN_OUTS, signOuts());
	accessKey.value = key;
	offeredKey.value = undefined;
	signedOutBecause.value = undefined;
}

function forget(reason: string | undefined): void {
	sessionStorage.removeItem(STORAGE);
	sessionStorage.removeItem(SIGN_OUTS);
	accessKey.value = undefined;
	needsNoKey.value = false;
	signedOutBecause.value = reason;
}

/** Takes a key. Open tabs that have none take it, too. */
export function signIn(key: string): void {
	take(key);
	say({ kind: "has", key });
}

/**
 * Forgets the key: in all tabs, or if the service refuses it, in those that have this one.
 *
 * @param refusal what the person has to know of a refused key
 */
export function signOut(refusal?: string): void {
	const key = accessKey.value;
	forget(refusal);
	if (refusal === undefined) {
		localStorage.setItem(SIGN_OUTS, String(Number(signOuts()) + 1));
		say({ kind: "ends", reason: SIGNED_OUT });
	} else if (key !== undefined) say({ kind: "ends", key, reason: refusal });
}

/**
 * Takes a key out of the address, `#key=…`, and removes it from there at once. A key that the tab has already is not
 * replaced without asking.
 */
export function takeKeyFromAddress(): void {
	const match = /^#key=(.+)$/.exec(location.hash);
	if (match?.[1] === undefined) return;
	history.replaceState(null, "", location.pathname + location.search);
	const key = match[1];
	if (accessKey.value === undefined) signIn(key);
	else if (accessKey.value !== key) offeredKey.value = key;
}
