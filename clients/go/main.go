// Ingests, reads, lists and watches over gRPC. GRPC_ADDRESS is the service's address, ACCESS_KEY an access key.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	conversationsv1 "example.com/conversations/gen/conversations/v1"
)

func main() {
	log.SetFlags(0)
	connection, err := grpc.NewClient(os.Getenv("GRPC_ADDRESS"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer connection.Close()
	ingest := conversationsv1.NewConversationIngestServiceClient(connection)
	reader := conversationsv1.NewConversationServiceClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "x-access-token", os.Getenv("ACCESS_KEY"))

	bytes := make([]byte, 16)
	rand.Read(bytes)
	id := fmt.Sprintf("%x-%x-%x-%x-%x", bytes[:4], bytes[4:6], bytes[6:8], bytes[8:10], bytes[10:])

	first := send(ctx, ingest, id, "first")
	fmt.Println("ingested as update", first)

	read, err := reader.GetConversation(ctx, &conversationsv1.GetConversationRequest{Id: id})
	check(err)
	expect(read.GetConversation().GetTitle() == "first" && read.GetConversation().GetMaxIterations() == 500, read)
	fmt.Println("read")

	list, err := reader.ListConversations(ctx, &conversationsv1.ListConversationsRequest{PageSize: 10})
	check(err)
	expect(list.GetConversations()[0].GetSummary().GetId() == id, list)
	fmt.Println("listed")

	expect(nextAfter(ctx, reader, id, first-1).GetSequence() == first, "not the first update")
	second := send(ctx, ingest, id, "second")
	update := nextAfter(ctx, reader, id, first)
	expect(update.GetSequence() == second && update.GetSummary().GetTitle() == "second", update)
	fmt.Println("watched, and resumed after update", first)

	_, err = ingest.IngestConversation(ctx, &conversationsv1.IngestConversationRequest{
		Conversation: &conversationsv1.ConversationInfo{Id: &id},
	})
	refusal := strings.Join(violations(err), ", ")
	expect(refusal == "conversation.workspace is missing, conversation.agent is missing", refusal)
	fmt.Println("refused:", refusal)
}

// send ingests the conversation with a title. It returns the sequence number of the update.
func send(ctx context.Context, client conversationsv1.ConversationIngestServiceClient, id, title string) int64 {
	workingDir := "/workspace"
	response, err := client.IngestConversation(ctx, &conversationsv1.IngestConversationRequest{
		Conversation: &conversationsv1.ConversationInfo{
			Id:    &id,
			Title: &title,
			Workspace: &conversationsv1.Workspace{Kind: &conversationsv1.Workspace_LocalWorkspace{
				LocalWorkspace: &conversationsv1.LocalWorkspace{WorkingDir: &workingDir},
			}},
			Agent: &conversationsv1.AnyAgent{Kind: &conversationsv1.AnyAgent_AcpAgent{
				AcpAgent: &conversationsv1.ACPAgent{AcpCommand: []string{"acp"}},
			}},
		},
	})
	check(err)
	return response.GetSequence()
}

// nextAfter returns the conversation's first update after a sequence number. It reconnects when the stream breaks.
func nextAfter(ctx context.Context, client conversationsv1.ConversationServiceClient, id string, sequence int64) *conversationsv1.ConversationUpdate {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		stream, err := client.WatchConversationUpdates(ctx, &conversationsv1.WatchConversationUpdatesRequest{
			Start:          &conversationsv1.WatchConversationUpdatesRequest_AfterSequence{AfterSequence: sequence},
			ConversationId: id,
		})
		for err == nil {
			var response *conversationsv1.WatchConversationUpdatesResponse
			if response, err = stream.Recv(); err == nil {
				if update := response.GetUpdate(); update != nil {
					return update
				}
				sequence = response.GetSequence()
			}
		}
		if !errors.Is(err, io.EOF) && status.Code(err) != codes.Unavailable {
			log.Fatal(err)
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// violations returns the field violations of the BadRequest in the details of an error.
func violations(err error) (found []string) {
	for _, detail := range status.Convert(err).Details() {
		if badRequest, ok := detail.(*errdetails.BadRequest); ok {
			for _, violation := range badRequest.GetFieldViolations() {
				found = append(found, violation.GetField()+" is "+violation.GetReason())
			}
		}
	}
	return found
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func expect(holds bool, got any) {
	if !holds {
		log.Fatalf("unexpected: %v", got)
	}
}
