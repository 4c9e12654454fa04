import { effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { serviceInfo } from "./service.ts";
import { accessKey } from "./session.ts";

interface Caller {
	/** Name of the key or of the client certificate. */
	readonly name: string;
	readonly scopes: ReadonlySet<string>;
	/** Owner whose conversations the key sees; empty if it sees all. */
	readonly owner: string;
}

/** Whose the key of this tab is; undefined until it is known. */
const caller = signal<Caller | undefined>(undefined);

effect(() => {
	void accessKey.value;
	caller.value = undefined;
});

/** Milliseconds after which the service is asked again. */
const RETRY_AFTER = 2_000;

/** Returns whose the key of this tab is; undefined until it is known. */
export function useCaller(): Caller | undefined {
	const key = accessKey.value;
	const isKnown = caller.value !== undefined;
	useEffect(() => {
		if (isKnown) return;
		let timer: ReturnType<typeof setTimeout>;
		const ask = (): void => {
			serviceInfo.getServiceInfo({}).then(
				({ caller: name, callerScopes, callerOwner }) => {
					if (accessKey.value === key) caller.value = { name, scopes: new Set(callerScopes), owner: callerOwner };
				},
				() => {
					timer = setTimeout(ask, RETRY_AFTER);
				},
			);
		};
		ask();
		return () => clearTimeout(timer);
	}, [key, isKnown]);
	return caller.value;
}

/** Whether the key has a scope; false until it is known. The service decides again with each call. */
export function useScope(scope: string): boolean {
	return useCaller()?.scopes.has(scope) ?? false;
}
