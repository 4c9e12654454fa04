import { effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { serviceInfo } from "./service.ts";
import { accessKey } from "./session.ts";

/** Scopes of the key of this tab; undefined until they are known. */
const scopes = signal<ReadonlySet<string> | undefined>(undefined);

effect(() => {
	void accessKey.value;
	scopes.value = undefined;
});

/** Milliseconds after which the scopes are asked for again. */
const RETRY_AFTER = 2_000;

/** Whether the key has a scope; false until it is known. The service decides again with each call. */
export function useScope(scope: string): boolean {
	const key = accessKey.value;
	const isKnown = scopes.value !== undefined;
	useEffect(() => {
		if (isKnown) return;
		let timer: ReturnType<typeof setTimeout>;
		const ask = (): void => {
			serviceInfo.getServiceInfo({}).then(
				({ callerScopes }) => {
					if (accessKey.value === key) scopes.value = new Set(callerScopes);
				},
				() => {
					timer = setTimeout(ask, RETRY_AFTER);
				},
			);
		};
		ask();
		return () => clearTimeout(timer);
	}, [key, isKnown]);
	return scopes.value?.has(scope) ?? false;
}
