import { getOption } from "@bufbuild/protobuf";
import { enum_value } from "../../gen/conversations/options/v1/options_pb.js";
import {
	type ConversationExecutionStatus,
	ConversationExecutionStatusSchema,
} from "../../gen/conversations/v1/conversation_pb.js";

const NUMBERS: ReadonlyMap<string, ConversationExecutionStatus> = new Map(
	ConversationExecutionStatusSchema.values.map((value) => [getOption(value, enum_value).name, value.number]),
);

const NAMES: ReadonlyMap<number, string> = new Map([...NUMBERS].map(([name, number]) => [number, name]));

/** Returns the JSON name of an execution status; empty when there is none. */
export function nameOfStatus(number: number): string {
	return NAMES.get(number) ?? "";
}

/** Returns the execution status with a JSON name such as `idle`; undefined when there is none. */
export function statusNamed(name: string): ConversationExecutionStatus | undefined {
	return name === "" ? undefined : NUMBERS.get(name);
}
