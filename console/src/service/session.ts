import { computed, signal } from "@preact/signals";

/** The access key of this tab. It is kept in the tab's session storage and is sent as a header with each call. */

const STORAGE = "access-key";

/** The access key; undefined until a person gives one. */
export const accessKey = signal<string | undefined>(sessionStorage.getItem(STORAGE) ?? undefined);

/** Whether the service lets the tab in without a key, because the browser shows a client certificate. */
export const needsNoKey = signal(false);

/** Whether the tab can call the service. */
export const admitted = computed(() => accessKey.value !== undefined || needsNoKey.value);

/** Why the tab has no key any more; undefined when the person knows. */
export const signedOutBecause = signal<string | undefined>(undefined);

/** A key that arrived in the address while the tab has another one. The person decides which to use. */
export const offeredKey = signal<string | undefined>(undefined);

export function signIn(key: string): void {
	sessionStorage.setItem(STORAGE, key);
	accessKey.value = key;
	offeredKey.value = undefined;
	signedOutBecause.value = undefined;
}

/**
 * Forgets the key.
 *
 * @param reason what the person has to know
 */
export function signOut(reason?: string): void {
	sessionStorage.removeItem(STORAGE);
	accessKey.value = undefined;
	needsNoKey.value = false;
	signedOutBecause.value = reason;
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
