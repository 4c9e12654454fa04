import { scopeOf } from "../../src/access/gate.ts";
import { COMMANDS } from "../../src/commands/commands.ts";
import { variables } from "../../src/config/variables.ts";
import { SERVICES } from "../../src/rpc/services.ts";
import { logEvents } from "../../src/telemetry/log.ts";
import { JSON_RPCS } from "../../src/transports/reads/reads.ts";

const shown = (text: string) => (text === "" ? "none" : `\`${text}\``);

/** The tables of docs/ that follow from the code, each as rows of cells. The first row is the header. */
const TABLES: Readonly<Record<string, () => readonly (readonly string[])[]>> = {
	variables: () => [
		["variable", "default", "meaning"],
		...variables.map(({ name, default: value, meaning }) => [
			`\`${name}\``,
			shown(value),
			// `--help` names the pages from the folder of the project.
			meaning.replaceAll(/docs\/([\w-]+\.md)/g, "[$1]($1)"),
		]),
	],
	commands: () => [
		["command", "what it does"],
		// `--help` has the options, and the page says once that commands work beside the service.
		...Object.entries(COMMANDS).map(([name, { operands = [], meaning }]) => [
			`\`${[name, ...operands].join(" ")}\``,
			meaning.replace(/[;:] .*/s, ""),
		]),
	],
	log: () => [
		["event", "level", "message"],
		...Object.entries(logEvents).map(([event, [level, message]]) => [`\`${event}\``, level, message]),
	],
	requests: () => [
		["RPC", "JSON over HTTP", "scope"],
		...SERVICES.flatMap((service) =>
			service.methods.map((rpc) => {
				const route = JSON_RPCS.find((one) => one.rpc === rpc);
				return [
					`\`${service.name}/${rpc.name}\``,
					route === undefined ? "" : `\`${route.method} ${route.path}\``,
					`\`${scopeOf(rpc)}\``,
				];
			}),
		),
	],
};

/**
 * Returns the text of a page with its tables as they follow from the code. A table stands below a line such as
 * `<!-- table: variables -->`. One with another header stays, behind the new one.
 *
 * @throws Error when the page names a table that is not known
 */
export function withTables(page: string): string {
	return page.replaceAll(
		/^(<!-- table: (\S+) -->\n\n)((?:\|.*\n)*)/gm,
		(_, mark: string, name: string, present: string) => {
			const table = TABLES[name];
			if (table === undefined) throw new Error(`there is no table ${name}`);
			const [header = [], ...rows] = table();
			const [first = "", ...rest] = [header, header.map(() => "---"), ...rows].map(lineOf);
			const behind = present.startsWith(first) ? "" : `\n${present}`;
			return mark + first + rest.join("") + behind;
		},
	);
}

function lineOf(cells: readonly string[]): string {
	return `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |\n`;
}
