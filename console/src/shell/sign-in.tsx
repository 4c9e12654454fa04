import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { RETRY_AFTER } from "../parts/notice.tsx";
import { problemOf, serviceInfo } from "../service/service.ts";
import { asksTabs, needsNoKey, offeredKey, signedOutBecause, signIn } from "../service/session.ts";
import { useTitle } from "./title.ts";

/** Asks for an access key. */
export function SignIn() {
	useTitle(undefined);
	const key = useSignal("");
	// A browser with a client certificate needs no key.
	useEffect(() => {
		let timer: ReturnType<typeof setTimeout>;
		const ask = (): void => {
			serviceInfo.getServiceInfo({}).then(
				() => {
					needsNoKey.value = true;
				},
				(error: unknown) => {
					if (problemOf(error).kind === "away") timer = setTimeout(ask, RETRY_AFTER);
				},
			);
		};
		ask();
		return () => clearTimeout(timer);
	}, []);
	if (asksTabs.value) return null;
	return (
		<main class="sign-in">
			<h1>Conversations</h1>
			<p class="muted">
				Give an access key with the scope <code>read</code>. The open tabs of the console share it and forget it with
				the last of them. Signing out ends them all.
			</p>
			{signedOutBecause.value !== undefined && (
				<p class="problem-text" role="alert">
					{signedOutBecause.value}
				</p>
			)}
			<form
				class="row"
				onSubmit={(event) => {
					event.preventDefault();
					if (key.value.trim() !== "") signIn(key.value.trim());
				}}
			>
				<input
					class="grow"
					type="password"
					aria-label="Access key"
					placeholder="Access key"
					autocomplete="off"
					value={key.value}
					onInput={(event) => {
						key.value = event.currentTarget.value;
					}}
				/>
				<button type="submit" class="primary">
					Sign in
				</button>
			</form>
		</main>
	);
}

/** Asks whether a key of the address replaces the key that the tab has. */
export function OfferedKey() {
	const key = offeredKey.value;
	if (key === undefined) return null;
	return (
		<div class="card row" role="alertdialog" aria-label="Another access key">
			<span class="grow">The address that you opened has another access key than this tab.</span>
			<button
				type="button"
				onClick={() => {
					signIn(key);
				}}
			>
				Use the new key
			</button>
			<button
				type="button"
				class="primary"
				onClick={() => {
					offeredKey.value = undefined;
				}}
			>
				Keep mine
			</button>
		</div>
	);
}
