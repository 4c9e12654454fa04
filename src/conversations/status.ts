import { getOption } from "@bufbuild/protobuf";
import { enum_value } from "../../gen/conversations/options/v1/options_pb.js";
import {
	type ConversationExecutionStatus,
	ConversationExecutionStatusSchema,
} from "../../gen/conversations/v1/conversation_pb.js";

const NAMES = new Map(
	ConversationExecutionStatusSchema.values.map((value) => [value.number, getOption(value, enum_value).name]),
);

/** JSON name of an execution status, such as `idle`; empty for one that is not set or not known. */
export function statusName(status: ConversationExecutionStatus | undefined): string {
	return NAMES.get(status ?? 0) ?? "";
}

/** The execution status with a JSON name; undefined when there is none. */
export function statusNamed(name: string): ConversationExecutionStatus | undefined {
	return name === "" ? undefined : [...NAMES].find(([, known]) => known === name)?.[0];
}
