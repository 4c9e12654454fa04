import type { JsonObject } from "@bufbuild/protobuf";
import { object } from "./fixtures.ts";

/** Names that the real sender uses, with the specification's names. */
const VENDOR_NAMES: Readonly<Record<string, string>> = {
	openrouter_site_url: "gateway_site_url",
	openrouter_app_name: "gateway_app_name",
	litellm_extra_body: "proxylib_extra_body",
	GraySwanAnalyzer: "VendorRiskAnalyzer",
	ToolShieldLLMSecurityAnalyzer: "GuardrailLLMSecurityAnalyzer",
};

/** Parses a real sender's body and replaces its names by the specification's. */
export function withSpecificationNames(body: string): JsonObject {
	const renamed = Object.entries(VENDOR_NAMES).reduce(
		(text, [theirs, ours]) => text.replaceAll(`"${theirs}"`, `"${ours}"`),
		body,
	);
	return object(JSON.parse(renamed));
}
