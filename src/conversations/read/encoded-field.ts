import { type DescField, type DescMessage, type Message, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

/**
 * Sets a message field of a message to bytes that encode its value, so that they need not be decoded. The encoded message
 * has the field; the message itself has it among its unknown fields.
 */
export function setEncodedField(message: Message, field: DescField, bytes: Uint8Array): void {
	// Not by the writer of the library alone, which copies large bytes several times while its buffer grows.
	const data = Buffer.concat([new BinaryWriter().uint32(bytes.byteLength).finish(), bytes]);
	message.$unknown = [...(message.$unknown ?? []), { no: field.number, wireType: WireType.LengthDelimited, data }];
}

/** Does the same as `toBinary`, but copies the fields that {@link setEncodedField} has set only once. */
export function encodeMessage<Desc extends DescMessage>(desc: Desc, message: MessageShape<Desc>): Uint8Array {
	const encoded = message.$unknown;
	if (encoded === undefined) return toBinary(desc, message);
	const known = toBinary(desc, message, { writeUnknownFields: false });
	const fields = encoded.flatMap(({ no, wireType, data }) => [new BinaryWriter().tag(no, wireType).finish(), data]);
	return Buffer.concat([known, ...fields]);
}
