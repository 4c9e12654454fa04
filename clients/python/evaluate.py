"""Scores conversations in batches over gRPC, and reads the report. GRPC_ADDRESS is the service's address, ACCESS_KEY an access
key with the scopes ingest, read and score.

The argument is the number of conversations, by default 1000. They are ingested first, each with the result of its tests
among its tags: replace judge() by your own judgement.
"""

import os
import sys
import time
import uuid
from collections.abc import Iterator

import grpc
from google.protobuf import struct_pb2

from conversations.v1 import (
    agent_pb2,
    conversation_ingest_service_pb2 as ingest_service,
    conversation_ingest_service_pb2_grpc as ingest_service_grpc,
    conversation_pb2,
    conversation_service_pb2 as service,
    conversation_service_pb2_grpc as service_grpc,
    score_service_pb2 as score_service,
    score_service_pb2_grpc as score_service_grpc,
    stats_pb2,
    summary_pb2,
    workspace_pb2,
)

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
# SetScores takes at most so many.
BATCH = 1000
# The service refuses requests when too many are under way.
UNDER_WAY = 20
KEY = (("x-access-token", os.environ["ACCESS_KEY"]),)
channel = grpc.insecure_channel(os.environ["GRPC_ADDRESS"])
ingest = ingest_service_grpc.ConversationIngestServiceStub(channel)
conversations = service_grpc.ConversationServiceStub(channel)
scores = score_service_grpc.ScoreServiceStub(channel)
# A run scores what has its tag, so that two runs do not meet.
RUN = uuid.uuid4().hex


def send(number: int) -> grpc.Future:
    """Ingests a conversation of one of two models, of which the first one passes more tests."""
    model, passed, cost = ("model-a", number % 10, 0.25) if number % 2 == 0 else ("model-b", number % 5, 0.1)
    agent = agent_pb2.Agent(llm={"model": model})
    record = conversation_pb2.ConversationInfo(
        id=str(uuid.uuid4()),
        workspace=workspace_pb2.Workspace(local_workspace=workspace_pb2.LocalWorkspace(working_dir="/workspace")),
        agent=agent_pb2.AnyAgent(agent=agent),
        stats=stats_pb2.ConversationStats(usage_to_metrics={"agent": stats_pb2.Metrics(accumulated_cost=cost)}),
        tags={"evaluation": RUN, "passed": str(passed)},
    )
    return ingest.IngestConversation.future(
        ingest_service.IngestConversationRequest(conversation=record), metadata=KEY, timeout=60
    )


def listed(query: service.ConversationFilter) -> Iterator[summary_pb2.ConversationSummary]:
    """Yields the summaries of the conversations that a filter selects."""
    token = ""
    while True:
        request = service.ListConversationsRequest(filter=query, page_size=1000, page_token=token)
        page = conversations.ListConversations(request, metadata=KEY, timeout=60)
        yield from (entry.summary for entry in page.conversations)
        token = page.next_page_token
        if not token:
            return


def judge(summary: summary_pb2.ConversationSummary) -> Iterator[score_service.NewScore]:
    """Yields the scores of a conversation: the share of the tests that pass, and whether all but one do."""
    share = int(summary.tags["passed"]) / 9
    values = {
        "tests_passed": struct_pb2.Value(number_value=share),
        "resolved": struct_pb2.Value(bool_value=share >= 0.8),
    }
    for name, value in values.items():
        yield score_service.NewScore(
            conversation_id=summary.id,
            name=name,
            value=value,
            comment=f"{summary.tags['passed']} of 9 tests",
            source=score_service.SCORE_SOURCE_PROGRAM,
        )


started = time.monotonic()
for first in range(0, COUNT, UNDER_WAY):
    for response in [send(number) for number in range(first, min(first + UNDER_WAY, COUNT))]:
        response.result()
print(f"ingested {COUNT} conversations in {time.monotonic() - started:.1f} s")

# Those that have no score yet: a run that was ended goes on so.
query = service.ConversationFilter(tags={"evaluation": RUN}, scores=["none:tests_passed"])
given = [score for summary in listed(query) for score in judge(summary)]
assert len(given) == 2 * COUNT, len(given)
for start in range(0, len(given), BATCH):
    batch = given[start : start + BATCH]
    began = time.monotonic()
    changed = scores.SetScores(score_service.SetScoresRequest(scores=batch), metadata=KEY, timeout=60).changed
    assert changed == len(batch), changed
    print(f"gave {changed} scores in {(time.monotonic() - began) * 1000:.0f} ms")
assert next(listed(query), None) is None

for name in ("tests_passed", "resolved"):
    request = score_service.ReportScoresRequest(
        name=name, group_by=["model"], filter=service.ConversationFilter(tags={"evaluation": RUN})
    )
    began = time.monotonic()
    report = scores.ReportScores(request, metadata=KEY, timeout=60)
    print(f"{name} by model, in {(time.monotonic() - began) * 1000:.0f} ms")
    for row in report.rows:
        of = row.scores
        figure = f"share of true {of.share_true:.3f}" if of.HasField("share_true") else f"mean {of.mean:.3f}"
        print(f"  {row.group[0]}: {of.count} scores, {figure}, {of.cost:.2f} USD")
    assert report.total.count == COUNT, report
