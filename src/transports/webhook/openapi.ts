import { readFile } from "node:fs/promises";
import type { Route } from "../http/router.ts";

/** The OpenAPI document, which `npm run build` makes (scripts/openapi). Its paths have no base path. */
const DOCUMENT = new URL("../../../dist/openapi.json", import.meta.url);

/**
 * Returns the public route of the OpenAPI document, which describes the webhooks and the JSON reads. Its path does not
 * depend on the base path, so that clients find it without knowing the base path.
 *
 * @param basePath prefix of the paths in the document: empty, or with a leading and no trailing slash
 */
export function openApiRoute(basePath: string): Route {
	return {
		method: "GET",
		path: "/openapi.json",
		scope: "public",
		handle: async () => (await readFile(DOCUMENT, "utf8")).replaceAll('"/api/v1/', () => `"${basePath}/api/v1/`),
	};
}
