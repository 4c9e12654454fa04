import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import { startTestService, type TestService } from "../support/service.ts";
import { TestBrowser } from "./browser.ts";
import { postSample, SAMPLES, type Sample } from "./samples.ts";
import { type Visit, visit, visitWithKey, type WindowOptions } from "./visit.ts";

/** The service and the browser of a file's tests, and the windows that they open. */
export class TestedConsole {
	#started: { readonly service: TestService; readonly browser: TestBrowser } | undefined;
	#visits: Visit[] = [];

	/**
	 * Starts them before the tests. After each test no page that it opened may have had a fault, and they are closed.
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
			const [browser, service] = await Promise.all([TestBrowser.start(browserEnv), startTestService(env)]);
			this.#started = { browser, service };
			for (const sample of samples) await postSample(service.http, sample);
		});
		// A page that was opened before the tests stays open until their end.
		beforeEach(() => {
			this.#visits = [];
		});
		afterEach(async () => {
			for (const { page, faults } of this.#visits) {
				expect(faults).toEqual([]);
				await page.context().close();
			}
		});
		afterAll(async () => {
			await this.#started?.browser[Symbol.asyncDispose]();
			await this.#started?.service[Symbol.asyncDispose]();
		});
	}

	get service(): TestService {
		if (this.#started === undefined) throw new Error("the tests have not begun");
		return this.#started.service;
	}

	get browser(): TestBrowser {
		if (this.#started === undefined) throw new Error("the tests have not begun");
		return this.#started.browser;
	}

	get http(): string {
		return this.service.http;
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
