import type { DescField, Message } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

/**
 * Sets a message field of a message to bytes that encode its value, so that they need not be decoded. The encoded message
 * has the field; the message itself has it among its unknown fields.
 */
export function setEncodedField(message: Message, field: DescField, bytes: Uint8Array): void {
	const data = new BinaryWriter().bytes(bytes).finish();
	message.$unknown = [...(message.$unknown ?? []), { no: field.number, wireType: WireType.LengthDelimited, data }];
}
