import type { Session } from "./session.ts";

/** Work in a transaction, written once for both engines. */
type Operation = (session: Session, argument: never) => Promise<unknown>;

/** The calls that run operations, each in a transaction of its own. */
export type SessionCalls<Operations> = {
	readonly [Name in keyof Operations]: Operations[Name] extends (
		session: Session,
		argument: infer Argument,
	) => Promise<infer Result>
		? (argument: Argument) => Promise<Result>
		: never;
};

/**
 * Returns the calls of operations.
 *
 * @param run runs an operation in a transaction
 */
export function callsOf<Operations extends Readonly<Record<string, Operation>>>(
	operations: Operations,
	run: (name: string, work: (session: Session) => Promise<unknown>) => Promise<unknown>,
): SessionCalls<Operations> {
	const calls = Object.entries(operations).map(([name, operation]) => [
		name,
		(argument: never) => run(name, (session) => operation(session, argument)),
	]);
	return Object.fromEntries(calls) as SessionCalls<Operations>;
}
