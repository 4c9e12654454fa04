"""The protoc plugin protoc-gen-grpc_python, which grpcio-tools contains only as a part of its protoc."""

import sys
import tempfile
from pathlib import Path

from google.protobuf.compiler.plugin_pb2 import CodeGeneratorRequest, CodeGeneratorResponse
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

request = CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
response = CodeGeneratorResponse(supported_features=CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL)
with tempfile.TemporaryDirectory() as folder:
    descriptors, out = Path(folder, "descriptors"), Path(folder, "out")
    descriptors.write_bytes(FileDescriptorSet(file=request.proto_file).SerializeToString())
    out.mkdir()
    arguments = ["protoc", f"--descriptor_set_in={descriptors}", f"--grpc_python_out={out}"]
    if protoc.main(arguments + list(request.file_to_generate)) != 0:
        response.error = "protoc has failed"
    for path in sorted(out.rglob("*.py")):
        response.file.add(name=str(path.relative_to(out)), content=path.read_text())
sys.stdout.buffer.write(response.SerializeToString())
