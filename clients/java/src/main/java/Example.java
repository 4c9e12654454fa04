import com.google.rpc.BadRequest;
import conversations.v1.ACPAgent;
import conversations.v1.AnyAgent;
import conversations.v1.ConversationInfo;
import conversations.v1.ConversationIngestServiceGrpc;
import conversations.v1.ConversationServiceGrpc;
import conversations.v1.ConversationUpdate;
import conversations.v1.GetConversationRequest;
import conversations.v1.IngestConversationRequest;
import conversations.v1.ListConversationsRequest;
import conversations.v1.LocalWorkspace;
import conversations.v1.WatchConversationUpdatesRequest;
import conversations.v1.Workspace;
import io.grpc.Context;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.MetadataUtils;
import java.util.UUID;
import java.util.stream.Collectors;

/** Ingests, reads, lists and watches over gRPC. GRPC_ADDRESS is the service's address, ACCESS_KEY an access key. */
public final class Example {
  private static final String ID = UUID.randomUUID().toString();

  private final ConversationIngestServiceGrpc.ConversationIngestServiceBlockingStub ingest;
  private final ConversationServiceGrpc.ConversationServiceBlockingStub conversations;

  private Example(io.grpc.Channel channel, String accessKey) {
    Metadata headers = new Metadata();
    headers.put(Metadata.Key.of("x-access-token", Metadata.ASCII_STRING_MARSHALLER), accessKey);
    var authenticate = MetadataUtils.newAttachHeadersInterceptor(headers);
    ingest = ConversationIngestServiceGrpc.newBlockingStub(channel).withInterceptors(authenticate);
    conversations = ConversationServiceGrpc.newBlockingStub(channel).withInterceptors(authenticate);
  }

  public static void main(String[] arguments) throws Exception {
    var channel = ManagedChannelBuilder.forTarget(System.getenv("GRPC_ADDRESS")).usePlaintext().build();
    try {
      new Example(channel, System.getenv("ACCESS_KEY")).run();
    } finally {
      channel.shutdownNow();
    }
  }

  private void run() throws Exception {
    long first = send("first");
    System.out.println("ingested as update " + first);

    var read = conversations.getConversation(GetConversationRequest.newBuilder().setId(ID).build()).getConversation();
    expect(read.getTitle().equals("first") && read.getMaxIterations() == 500, read);
    System.out.println("read");

    var list = conversations.listConversations(ListConversationsRequest.newBuilder().setPageSize(10).build());
    expect(list.getConversations(0).getSummary().getId().equals(ID), list);
    System.out.println("listed");

    expect(nextAfter(first - 1).getSequence() == first, "not the first update");
    long second = send("second");
    var update = nextAfter(first);
    expect(update.getSequence() == second && update.getSummary().getTitle().equals("second"), update);
    System.out.println("watched, and resumed after update " + first);

    String refusal = refusalOf(ConversationInfo.newBuilder().setId(ID).build());
    expect(refusal.equals("conversation.workspace is missing, conversation.agent is missing"), refusal);
    System.out.println("refused: " + refusal);
  }

  /** Ingests the conversation with a title. Returns the sequence number of the update. */
  private long send(String title) {
    var workspace = LocalWorkspace.newBuilder().setWorkingDir("/workspace");
    var agent = ACPAgent.newBuilder().addAcpCommand("acp");
    var conversation =
        ConversationInfo.newBuilder()
            .setId(ID)
            .setTitle(title)
            .setWorkspace(Workspace.newBuilder().setLocalWorkspace(workspace))
            .setAgent(AnyAgent.newBuilder().setAcpAgent(agent));
    return ingest.ingestConversation(request(conversation.build())).getSequence();
  }

  /** Returns the conversation's first update after a sequence number. Reconnects when the stream breaks. */
  private ConversationUpdate nextAfter(long sequence) throws Exception {
    try (var context = Context.current().withCancellation()) {
      return context.call(
          () -> {
            long last = sequence;
            while (true) {
              var request =
                  WatchConversationUpdatesRequest.newBuilder().setAfterSequence(last).setConversationId(ID).build();
              try {
                var stream = conversations.watchConversationUpdates(request);
                while (stream.hasNext()) {
                  var response = stream.next();
                  if (response.hasUpdate()) {
                    return response.getUpdate();
                  }
                  last = response.getSequence();
                }
              } catch (StatusRuntimeException error) {
                if (error.getStatus().getCode() != Status.Code.UNAVAILABLE) {
                  throw error;
                }
              }
              Thread.sleep(250);
            }
          });
    }
  }

  /** Returns the field violations with which the service refuses a record, from the BadRequest in the error details. */
  private String refusalOf(ConversationInfo conversation) throws Exception {
    try {
      ingest.ingestConversation(request(conversation));
      throw new AssertionError("an incomplete record was taken");
    } catch (StatusRuntimeException error) {
      for (var detail : StatusProto.fromThrowable(error).getDetailsList()) {
        if (detail.is(BadRequest.class)) {
          return detail.unpack(BadRequest.class).getFieldViolationsList().stream()
              .map(violation -> violation.getField() + " is " + violation.getReason())
              .collect(Collectors.joining(", "));
        }
      }
      throw error;
    }
  }

  private static IngestConversationRequest request(ConversationInfo conversation) {
    return IngestConversationRequest.newBuilder().setConversation(conversation).build();
  }

  private static void expect(boolean holds, Object got) {
    if (!holds) {
      throw new AssertionError("unexpected: " + got);
    }
  }
}
