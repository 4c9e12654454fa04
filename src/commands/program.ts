import { parseArgs } from "node:util";
import { ConfigError, readConfig } from "../config/config.ts";
import { variables } from "../config/variables.ts";
import { demoEnvironment } from "../demo/demo.ts";
import { packageJson } from "../package-json.ts";
import { COMMANDS } from "./commands.ts";
import { type Command, OPTIONS, UsageError } from "./options.ts";
import { print, reasonOf } from "./output.ts";

const USAGE_STATUS = 2;

/** Runs the command that is named in the arguments. */
async function runCommand(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
	const { values, positionals } = parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
	if (values.help === true) return print(help());
	if (values.version === true) return print(packageJson().version);
	const [first = "serve", second = ""] = positionals;
	// A name has one word or two.
	const name = Object.hasOwn(COMMANDS, `${first} ${second}`) ? `${first} ${second}` : first;
	const operands = positionals.slice(name === first ? 1 : 2);
	const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
	if (command === undefined) throw new UsageError(`There is no command "${name}"`);
	const { operands: names = [] } = command;
	const taken = new Set<string>(command.options);
	const isForeign = Object.keys(values).some((option) => !taken.has(option));
	const takesMore = names.at(-1)?.endsWith("…") === true;
	const isCounted = takesMore ? operands.length >= names.length - 1 : operands.length === names.length;
	if (!isCounted || isForeign) throw new UsageError(`Usage: ${usageOf(name, command)}`);
	const config = readConfig(values.demo === true ? demoEnvironment(environment) : environment);
	try {
		await command.run(config, operands, values);
	} catch (error) {
		if (error instanceof UsageError) throw error;
		throw new Error(name === "serve" ? "The service cannot start" : `The command ${name} failed`, { cause: error });
	}
}

/** Returns whether an error means invalid arguments, which `parseArgs` or a command rejected. */
function isUsage(error: unknown): boolean {
	const code = error instanceof Error && "code" in error ? String(error.code) : "";
	return error instanceof UsageError || code.startsWith("ERR_PARSE_ARGS_");
}

/** Runs the program. Writes the reason of a failure to standard error, and exits. */
export async function runProgram(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
	try {
		await runCommand(args, environment);
	} catch (error) {
		const usage = isUsage(error);
		const text = error instanceof ConfigError ? error.message : `${reasonOf(error)}${usage ? "; see --help" : ""}`;
		process.stderr.write(`${text}\n`);
		process.exit(usage ? USAGE_STATUS : 1);
	}
}

/** Returns the usage of a command: its name and arguments. */
export function usageOf(name: string, { operands = [], options = [] }: Command): string {
	const taken = options.map((name) => {
		const option = OPTIONS[name];
		return "value" in option ? `[--${name} ${option.value}]` : `[--${name}]`;
	});
	return [name, ...operands, ...taken].join(" ");
}

function help(): string {
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

Commands, which work beside a running service, too, if they do not say otherwise:
${commands.join("\n")}

Options:
  -h, --help    print this text
  --version     print the version

Environment variables:
${environment.join("\n")}`;
}
