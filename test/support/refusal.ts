import { ServiceError, type Violation } from "../../src/errors.ts";

/** The violations for which something refuses a record. */
export function violationsOf(action: () => unknown): readonly Violation[] {
	try {
		action();
	} catch (error) {
		if (error instanceof ServiceError && error.kind === "invalid_record") return error.violations;
		throw error;
	}
	throw new Error("the record was accepted");
}

/** The places and types of violations: `agent.llm.model string_type`. */
export function summaryOf(violations: readonly Violation[]): string[] {
	return violations.map(({ path, type }) => `${path.join(".")} ${type}`.trimStart());
}
