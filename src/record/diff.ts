import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { deriveOnce, type Fields, isFields } from "../protobuf/messages.ts";

/**
 * Finds the fields in which two messages of one type differ.
 *
 * @returns paths of proto field names as in google.protobuf.FieldMask, in the order of the descriptors. No path leads
 *   below another one. Paths lead into a message that both sides have. A list, a map, a well-known type and a message
 *   that only one side has are reported as a whole.
 */
type Diff = (before: object, after: object) => string[];

type Same = (a: unknown, b: unknown) => boolean;
type Report = (path: string) => void;
type Compare = (a: Fields, b: Fields, prefix: string, report: Report) => void;

/** Derives the comparison of two messages of a type from its descriptor. */
export function deriveDiff(desc: DescMessage): Diff {
	const compare = new DiffBuilder().message(desc);
	return (before, after) => {
		const paths: string[] = [];
		if (isFields(before) && isFields(after)) compare(before, after, "", (path) => paths.push(path));
		return paths;
	};
}

class DiffBuilder {
	readonly #comparisons = new Map<string, Compare>();
	readonly #equalityTests = new Map<string, Same>();

	/** Returns the comparison that reports the paths of the differing fields. */
	message(desc: DescMessage): Compare {
		return deriveOnce(this.#comparisons, desc.typeName, () => {
			const fields = desc.fields.map((field) => ({ field, get: reader(field), compare: this.#field(field) }));
			return (a, b, prefix, report) => {
				for (const { field, get, compare } of fields) compare(get(a), get(b), `${prefix}${field.name}`, report);
			};
		});
	}

	#field(field: DescField): (a: unknown, b: unknown, path: string, report: Report) => void {
		if (field.fieldKind === "message" && !isWellKnown(field.message)) {
			const compare = this.message(field.message);
			return (a, b, path, report) => {
				if (isFields(a) && isFields(b)) compare(a, b, `${path}.`, report);
				else if (a !== b) report(path);
			};
		}
		const same = this.#sameField(field);
		return (a, b, path, report) => {
			if (!same(a, b)) report(path);
		};
	}

	/** Returns a function that tests whether two values of a field are equal. Either of them may be unset. */
	#sameField(field: DescField): Same {
		const item = this.#sameItem(field.message);
		const same = field.fieldKind === "list" ? sameItems(item) : field.fieldKind === "map" ? sameEntries(item) : item;
		return (a, b) => a === b || same(a, b);
	}

	#sameItem(desc: DescMessage | undefined): Same {
		// Scalars and enums. The record has no field of type bytes.
		if (desc === undefined) return (a, b) => a === b;
		return isWellKnown(desc) ? sameTree : this.#sameMessage(desc);
	}

	#sameMessage(desc: DescMessage): Same {
		return deriveOnce(this.#equalityTests, desc.typeName, () => {
			const fields = desc.fields.map((field) => ({ get: reader(field), same: this.#sameField(field) }));
			return (a, b) => isFields(a) && isFields(b) && fields.every(({ get, same }) => same(get(a), get(b)));
		});
	}
}

/** Returns a function that reads a field of a generated message. An arm that is not set reads as undefined. */
function reader({ localName, oneof }: DescField): (message: Fields) => unknown {
	if (oneof === undefined) return (message) => message[localName];
	const name = oneof.localName;
	return (message) => {
		const selected = message[name];
		return isFields(selected) && selected.case === localName ? selected.value : undefined;
	};
}

/** Whether a message has a well-known type, such as Timestamp or Struct. Its values are compared as a whole. */
function isWellKnown(desc: DescMessage): boolean {
	return desc.typeName.startsWith("google.protobuf.");
}

function sameItems(same: Same): Same {
	return (a, b) =>
		Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((item, index) => same(item, b[index]));
}

function sameEntries(same: Same): Same {
	return (a, b) => {
		if (!isFields(a) || !isFields(b)) return false;
		const names = Object.keys(a);
		return (
			names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]))
		);
	};
}

/** Whether two trees of plain objects, arrays and scalars are equal in any order of members. 0 equals -0. */
export function sameTree(a: unknown, b: unknown): boolean {
	if (a === b) return true;
	if (Array.isArray(a)) return sameElements(a, b);
	return !Array.isArray(b) && sameMembers(a, b);
}

const sameElements = sameItems(sameTree);
const sameMembers = sameEntries(sameTree);
