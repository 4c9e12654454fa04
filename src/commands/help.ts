import { variables } from "../config/variables.ts";
import { packageJson } from "../package-json.ts";
import { COMMANDS, type Command } from "./commands.ts";
import { OPTIONS } from "./options.ts";

/** Returns the usage of a command: its name and arguments. */
export function usageOf(name: string, { operands, options = [] }: Command): string {
	const taken = options.map((name) => {
		const option = OPTIONS[name];
		return "value" in option ? `[--${name} ${option.value}]` : `[--${name}]`;
	});
	return [name, ...operands, ...taken].join(" ");
}

/** Returns the text of `--help`. */
export function help(): string {
	const { name, description } = packageJson();
	const usages = Object.entries(COMMANDS).map(([command, of]) => ({
		usage: usageOf(command, of),
		meaning: of.meaning,
	}));
	const width = Math.max(...usages.map(({ usage }) => usage.length));
	const commands = usages.map(({ usage, meaning }) => `  ${usage.padEnd(width)}  ${meaning}`);
	const environment = variables.map(
		({ name, default: fallback, meaning }) => `  ${name} (default: ${fallback || "none"})\n      ${meaning}`,
	);
	return `${description}

Usage: ${name} [command]

Commands:
${commands.join("\n")}

Options:
  -h, --help    print this text
  --version     print the version

Environment variables:
${environment.join("\n")}`;
}
