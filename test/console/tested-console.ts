import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import type { Endpoints } from "../support/clients.ts";
import { startTestService, type TestService } from "../support/service.ts";
import { TestBrowser } from "./browser.ts";
import { postSample, SAMPLES, type Sample } from "./samples.ts";
import { type Visit, visit, visitWithKey, type WindowOptions } from "./visit.ts";

/** The service and the browser of a file's tests, and the windows that they open. */
export class TestedConsole implements Endpoints {
	#browser: TestBrowser | undefined;
	#service: TestService | undefined;
	readonly #visits: Visit[] = [];
	/** Number of windows that were opened before the test. They stay open until the end of the tests. */
	#opened = 0;

	/**
	 * Starts them before the tests. After each test its windows are closed, and no open page may have had a fault.
	 *
	 * @param settings.env variables of the service
	 * @param settings.samples what is posted before the tests
	 * @param settings.browserEnv variables of the browser
	 */
	constructor({
		env = {},
		samples = SAMPLES,
		browserEnv = {},
	}: {
		readonly env?: Readonly<Record<string, string>>;
		readonly samples?: readonly Sample[];
		readonly browserEnv?: Readonly<Record<string, string>>;
	} = {}) {
		beforeAll(async () => {
			this.#browser = await TestBrowser.start(browserEnv);
			this.#service = await startTestService(env);
			for (const sample of samples) await postSample(this.http, sample);
		});
		beforeEach(() => {
			this.#opened = this.#visits.length;
		});
		afterEach(async () => {
			const faults = this.#visits.flatMap((opened) => opened.faults);
			for (const { page } of this.#visits.splice(this.#opened)) await page.context().close();
			expect(faults).toEqual([]);
		});
		afterAll(async () => {
			await this.#browser?.[Symbol.asyncDispose]();
			await this.#service?.[Symbol.asyncDispose]();
		});
	}

	get browser(): TestBrowser {
		return begun(this.#browser);
	}

	get http(): string {
		return begun(this.#service).http;
	}

	get grpc(): string {
		return begun(this.#service).grpc;
	}

	/** Opens a window of its own on a page of the console, with a key. */
	async open(address?: string, options?: WindowOptions, key?: string, http = this.http): Promise<Page> {
		return this.#kept(await visitWithKey(this.browser, http, address, options, key));
	}

	/** Opens a window of its own on a URL, without a key. */
	async openUrl(url: string, options?: WindowOptions): Promise<Page> {
		return this.#kept(await visit(this.browser, url, options));
	}

	#kept(opened: Visit): Page {
		this.#visits.push(opened);
		return opened.page;
	}
}

function begun<Started>(started: Started | undefined): Started {
	if (started === undefined) throw new Error("the tests have not begun");
	return started;
}
