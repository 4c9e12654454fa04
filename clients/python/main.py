"""Ingests, reads, lists and watches over gRPC. GRPC_ADDRESS is the service's address, ACCESS_KEY an access key."""

import os
import time
import uuid

import grpc
from google.rpc.error_details_pb2 import BadRequest
from grpc_status import rpc_status

from conversations.v1 import (
    agent_pb2,
    conversation_ingest_service_pb2 as ingest_service,
    conversation_ingest_service_pb2_grpc as ingest_service_grpc,
    conversation_pb2,
    conversation_service_pb2 as service,
    conversation_service_pb2_grpc as service_grpc,
    workspace_pb2,
)

channel = grpc.insecure_channel(os.environ["GRPC_ADDRESS"])
KEY = (("x-access-token", os.environ["ACCESS_KEY"]),)
ingest = ingest_service_grpc.ConversationIngestServiceStub(channel)
conversations = service_grpc.ConversationServiceStub(channel)
conversation_id = str(uuid.uuid4())


def send(title: str) -> int:
    """Ingests the conversation with a title. Returns the sequence number of the update."""
    record = conversation_pb2.ConversationInfo(
        id=conversation_id,
        title=title,
        workspace=workspace_pb2.Workspace(local_workspace=workspace_pb2.LocalWorkspace(working_dir="/workspace")),
        agent=agent_pb2.AnyAgent(acp_agent=agent_pb2.ACPAgent(acp_command=["acp"])),
    )
    request = ingest_service.IngestConversationRequest(conversation=record)
    return ingest.IngestConversation(request, metadata=KEY, timeout=10).sequence


def next_after(sequence: int) -> service.ConversationUpdate:
    """Returns the conversation's first update after a sequence number. Reconnects when the stream breaks."""
    while True:
        request = service.WatchConversationUpdatesRequest(after_sequence=sequence, conversation_id=conversation_id)
        stream = conversations.WatchConversationUpdates(request, metadata=KEY)
        try:
            for response in stream:
                if response.HasField("update"):
                    return response.update
                sequence = response.sequence
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
        finally:
            stream.cancel()
        time.sleep(0.25)


def violations(error: grpc.RpcError) -> list[str]:
    """Returns the field violations of the BadRequest in the details of an error."""
    found = []
    for detail in rpc_status.from_call(error).details:
        bad_request = BadRequest()
        if detail.Unpack(bad_request):
            found += [f"{violation.field} is {violation.reason}" for violation in bad_request.field_violations]
    return found


first = send("first")
print("ingested as update", first)

read = conversations.GetConversation(service.GetConversationRequest(id=conversation_id), metadata=KEY).conversation
assert (read.title, read.max_iterations) == ("first", 500), read
print("read")

listed = conversations.ListConversations(service.ListConversationsRequest(page_size=10), metadata=KEY)
assert listed.conversations[0].summary.id == conversation_id, listed
print("listed")

assert next_after(first - 1).sequence == first
second = send("second")
update = next_after(first)
assert (update.sequence, update.summary.title) == (second, "second"), update
print("watched, and resumed after update", first)

try:
    incomplete = conversation_pb2.ConversationInfo(id=conversation_id)
    ingest.IngestConversation(ingest_service.IngestConversationRequest(conversation=incomplete), metadata=KEY)
    raise AssertionError("an incomplete record was taken")
except grpc.RpcError as error:
    refusal = ", ".join(violations(error))
assert refusal == "conversation.workspace is missing, conversation.agent is missing", refusal
print("refused:", refusal)
