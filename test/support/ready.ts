import { expect } from "vitest";
import type { Endpoints } from "./clients.ts";

/** Waits until a service reports that it is ready, or that it is not. */
export async function expectReady(service: Endpoints, ready: boolean): Promise<void> {
	const status = async () => (await fetch(`${service.http}/readyz`)).status;
	await expect.poll(status, { timeout: 30_000 }).toBe(ready ? 200 : 503);
}
