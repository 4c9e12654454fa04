import { ServiceError, type Violation } from "../../src/errors.ts";

/**
 * Returns the violations for which an action refuses a record.
 *
 * @throws Error when the record is accepted
 */
export function violationsOf(action: () => unknown): readonly Violation[] {
	try {
		action();
	} catch (error) {
		if (error instanceof ServiceError && error.kind === "invalid_record") return error.violations;
		throw error;
	}
	throw new Error("the record was accepted");
}

/** Returns the paths and types of violations: `agent.llm.model string_type`. */
export function summaryOf(violations: readonly Violation[]): string[] {
	return violations.map(({ path, type }) => `${path.join(".")} ${type}`.trimStart());
}
