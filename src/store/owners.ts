/** Which conversations get an owner: those with these ids, those without an owner of a sender, or all without one. */
export type Unassigned = { readonly ids: readonly string[] } | { readonly sender: string } | "all without an owner";

/** A step of an assignment. */
export interface OwnerAssignment {
	/** The new owner; not empty. */
	readonly owner: string;
	readonly of: Unassigned;
	/** Maximum number of conversations to change. */
	readonly limit: number;
}
