import { create, createFileRegistry, setExtension } from "@bufbuild/protobuf";
import {
	FieldDescriptorProto_Label,
	FieldDescriptorProto_Type,
	FieldOptionsSchema,
	FileDescriptorSetSchema,
} from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { FieldRulesSchema, field as fieldOption } from "../../gen/conversations/options/v1/options_pb.js";
import { planMessage } from "../../src/record/plan.ts";

/** Returns the plan of a message with one union for each tag. The message Arm is an arm of each, under that tag. */
function planWithTags(...tags: readonly string[]) {
	const optional = FieldDescriptorProto_Label.OPTIONAL;
	const type = FieldDescriptorProto_Type.MESSAGE;
	const unions = tags.map((tag, index) => {
		const options = create(FieldOptionsSchema);
		setExtension(options, fieldOption, create(FieldRulesSchema, { tag }));
		const arm = { name: "arm", number: 1, label: optional, type, typeName: ".test.Arm", oneofIndex: 0, options };
		return { name: `Union${index}`, oneofDecl: [{ name: "kind" }], field: [arm] };
	});
	const field = unions.map(({ name }, index) => ({
		name: `field${index}`,
		number: index + 1,
		label: optional,
		type,
		typeName: `.test.${name}`,
	}));
	const messageType = [{ name: "Arm" }, ...unions, { name: "Root", field }];
	const file = { name: "test.proto", package: "test", syntax: "proto3", messageType };
	const root = createFileRegistry(create(FileDescriptorSetSchema, { file: [file] })).getMessage("test.Root");
	if (root === undefined) throw new Error("the file has the message");
	return planMessage(root);
}

test("a message may be an arm of two unions only under the same tags", () => {
	expect(planWithTags("a", "a").form).toBe("object");
	expect(() => planWithTags("a", "b")).toThrow(/Union1\.arm: the message is an arm of another union under other tags$/);
});
