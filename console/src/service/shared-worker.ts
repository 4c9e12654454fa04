import { Hub, type HubMessage, type Topic } from "./hub.ts";

/** The worker that holds the watches of all tabs of the console. A page imports this module for its address. */

/** Address of this module's own file, which the worker loads. */
export const WORKER_ADDRESS = import.meta.url;

/** What a tab asks the worker, about subscriptions that it numbers. */
export type HubRequest =
	| { readonly open: number; readonly topic: Topic; readonly after: bigint }
	| { readonly close: number };
/** What the worker answers. */
export type HubAnswer = { readonly subscription: number; readonly message: HubMessage };

if ("SharedWorkerGlobalScope" in globalThis) {
	const hub = new Hub();
	addEventListener("connect", (event) => {
		if (!(event instanceof MessageEvent)) return;
		for (const port of event.ports) serve(hub, port);
	});
}

/** Serves a tab. */
function serve(hub: Hub, port: MessagePort): void {
	const stops = new Map<number, () => void>();
	port.addEventListener("message", ({ data }: MessageEvent<HubRequest>) => {
		if ("close" in data) {
			stops.get(data.close)?.();
			stops.delete(data.close);
			return;
		}
		const { open: subscription, topic, after } = data;
		const answer = (message: HubMessage): void => {
			port.postMessage({ subscription, message } satisfies HubAnswer);
		};
		stops.set(subscription, hub.subscribe(topic, after, answer));
	});
	// A tab that ended without a word.
	port.addEventListener("close", () => {
		for (const stop of stops.values()) stop();
	});
	port.start();
}
