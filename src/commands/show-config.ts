import type { Config } from "../config/config.ts";
import { variables } from "../config/variables.ts";
import { print } from "./output.ts";

/** The command `config`. */
export function showConfig({ settings }: Config): void {
	const shown = (value = ""): string => (value === "" ? "none" : value);
	for (const { name, value, source } of settings) {
		const fallback = variables.find((known) => known.name === name)?.default;
		const origin = source === "default" || fallback === undefined ? source : `${source}; default: ${shown(fallback)}`;
		print(`${name} = ${shown(value)} (${origin})`);
	}
}
