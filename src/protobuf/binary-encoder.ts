import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence, ValueSchema } from "@bufbuild/protobuf/wkt";
import { deriveOnce } from "./derive-once.ts";
import { isFields } from "./fields.ts";
import { Writer } from "./wire-writer.ts";

/**
 * Creates an encoder for a message type from its descriptor. The encoder writes the same bytes as `toBinary` of
 * protobuf-es, as a test checks, in a third of the time: `toBinary` visits each field through a chain of closures that
 * the JavaScript engine cannot specialise (figures in docs/benchmarks.md).
 *
 * Supports messages, maps with string keys, strings, doubles, booleans, enums, and 32- and 64-bit integers. Does not
 * write unknown fields.
 *
 * @throws Error when the descriptor has a field of another type
 */
export function deriveBinaryEncoder(desc: DescMessage): (message: object) => Uint8Array {
	const write = new EncoderBuilder().message(desc);
	const writer = new Writer();
	return (message) => {
		writer.start();
		write(writer, message);
		return writer.take();
	};
}

/** Writes a message, a field or a value. Writing runs from the last byte to the first: see {@link Writer}. */
type Write = (writer: Writer, value: unknown) => void;

const VARINT = 0;
const FIXED64 = 1;
const LENGTH_DELIMITED = 2;

class EncoderBuilder {
	readonly #writes = new Map<string, Write>();

	message(desc: DescMessage): Write {
		return deriveOnce(this.#writes, desc.typeName, () => {
			const fields = desc.fields.toSorted((a, b) => b.number - a.number);
			const contents = fields.map((field) => this.#contents(field));
			return compile(fields, contents);
		});
	}

	#contents(field: DescField): Write {
		if (field.fieldKind === "map") return this.#map(field);
		const write = this.#value(field, field.number);
		if (field.fieldKind !== "list") return write;
		return (writer, items) => {
			if (!Array.isArray(items)) return;
			for (let index = items.length - 1; index >= 0; index--) write(writer, items[index]);
		};
	}

	#map(field: DescField & { fieldKind: "map" }): Write {
		if (field.mapKey !== ScalarType.STRING) throw new Error(`${field}: only maps with string keys are supported`);
		const tag = tagOf(field.number, LENGTH_DELIMITED);
		const keyTag = tagOf(1, LENGTH_DELIMITED);
		const writeValue = this.#value(field, 2);
		return (writer, entries) => {
			if (!isFields(entries)) return;
			for (const key of Object.keys(entries).reverse()) {
				const end = writer.position;
				writeValue(writer, entries[key]);
				writer.string(key);
				writer.varint(keyTag);
				writer.length(end);
				writer.varint(tag);
			}
		};
	}

	/** Returns a function that writes one value of a field with its tag. */
	#value(field: DescField, number: number): Write {
		if (field.message !== undefined) return this.#messageValue(field, field.message, tagOf(number, LENGTH_DELIMITED));
		if (field.enum !== undefined) return integer(tagOf(number, VARINT));
		switch (field.scalar) {
			case ScalarType.STRING: {
				const tag = tagOf(number, LENGTH_DELIMITED);
				return (writer, value) => {
					writer.string(String(value));
					writer.varint(tag);
				};
			}
			case ScalarType.DOUBLE: {
				const tag = tagOf(number, FIXED64);
				return (writer, value) => {
					writer.double(Number(value));
					writer.varint(tag);
				};
			}
			case ScalarType.BOOL:
			case ScalarType.INT32:
			case ScalarType.INT64:
				return integer(tagOf(number, VARINT));
			default:
				throw new Error(`${field}: fields of this type are not supported`);
		}
	}

	#messageValue(field: DescField, desc: DescMessage, tag: number): Write {
		// protobuf-es represents a Struct field as a plain JSON object, except inside google.protobuf.Value.
		const isPlainObject = desc.typeName === "google.protobuf.Struct" && field.parent.typeName !== ValueSchema.typeName;
		const write = isPlainObject ? writeStruct : this.message(desc);
		return (writer, value) => {
			const end = writer.position;
			write(writer, value);
			writer.length(end);
			writer.varint(tag);
		};
	}
}

/**
 * Compiles the encoder of a message. The JavaScript engine can specialise each property access, because the source
 * contains the property's name. All names in the source come from the descriptor.
 */
function compile(fields: readonly DescField[], contents: readonly Write[]): Write {
	const lines = fields.map((field, index) => {
		const { localName, oneof } = field;
		if (oneof !== undefined) {
			const selected = `message.${oneof.localName}`;
			return `if (${selected}?.case === ${JSON.stringify(localName)}) contents[${index}](writer, ${selected}.value);`;
		}
		const write = field.fieldKind === "scalar" ? scalarSource(field, index) : `contents[${index}](writer, value);`;
		return `value = message.${localName}; if (${isSetSource(field)}) { ${write} }`;
	});
	const make = new Function("contents", `return (writer, message) => { let value; ${lines.join("\n")} };`) as (
		contents: readonly Write[],
	) => Write;
	return make(contents);
}

/**
 * Returns source that tests whether a field is set. With implicit presence a zero value is unset, as in protobuf-es.
 */
function isSetSource(field: DescField): string {
	const implicit =
		(field.fieldKind === "scalar" || field.fieldKind === "enum") &&
		field.presence === FeatureSet_FieldPresence.IMPLICIT;
	if (!implicit) return "value !== undefined";
	switch (field.scalar) {
		case ScalarType.STRING:
			return "value !== ''";
		case ScalarType.BOOL:
			return "value !== false";
		case ScalarType.DOUBLE:
			// -0 is not the zero value.
			return "!Object.is(value, 0)";
		default:
			return "value != 0";
	}
}

/** Returns source that writes a scalar field: strings inline, other types by their function in `contents`. */
function scalarSource(field: DescField & { fieldKind: "scalar" }, index: number): string {
	if (field.scalar !== ScalarType.STRING) return `contents[${index}](writer, value);`;
	return `writer.string(value); writer.varint(${tagOf(field.number, LENGTH_DELIMITED)});`;
}

function tagOf(number: number, wireType: number): number {
	return (number << 3) | wireType;
}

function integer(tag: number): Write {
	return (writer, value) => {
		if (typeof value === "bigint") writer.bigVarint(value);
		else writer.varint(Number(value));
		writer.varint(tag);
	};
}

const STRUCT_FIELDS = tagOf(1, LENGTH_DELIMITED);
const ENTRY_KEY = tagOf(1, LENGTH_DELIMITED);
const ENTRY_VALUE = tagOf(2, LENGTH_DELIMITED);

/** Writes a JSON object as the contents of a google.protobuf.Struct. */
function writeStruct(writer: Writer, json: unknown): void {
	if (!isFields(json) || Array.isArray(json)) throw new TypeError("a Struct must be a JSON object");
	for (const [name, member] of Object.entries(json).reverse()) {
		const end = writer.position;
		writeValue(writer, member);
		writer.varint(ENTRY_VALUE);
		writer.string(name);
		writer.varint(ENTRY_KEY);
		writer.length(end);
		writer.varint(STRUCT_FIELDS);
	}
}

/** Writes a JSON value as a google.protobuf.Value, preceded by its length. */
function writeValue(writer: Writer, json: unknown): void {
	const end = writer.position;
	if (json === null) {
		writer.varint(0);
		writer.varint(tagOf(1, VARINT));
	} else if (typeof json === "number") {
		writer.double(json);
		writer.varint(tagOf(2, FIXED64));
	} else if (typeof json === "string") {
		writer.string(json);
		writer.varint(tagOf(3, LENGTH_DELIMITED));
	} else if (typeof json === "boolean") {
		writer.varint(json ? 1 : 0);
		writer.varint(tagOf(4, VARINT));
	} else if (Array.isArray(json)) {
		for (let index = json.length - 1; index >= 0; index--) {
			writeValue(writer, json[index]);
			writer.varint(tagOf(1, LENGTH_DELIMITED));
		}
		writer.length(end);
		writer.varint(tagOf(6, LENGTH_DELIMITED));
	} else {
		writeStruct(writer, json);
		writer.length(end);
		writer.varint(tagOf(5, LENGTH_DELIMITED));
	}
	writer.length(end);
}
