//! Ingests, reads, lists and watches over gRPC. GRPC_ADDRESS is the service's address, ACCESS_KEY an access key.

use std::{env, time::Duration};

use tonic::{
    Code, Request, Status,
    metadata::AsciiMetadataValue,
    service::interceptor::InterceptedService,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt;
use uuid::Uuid;

mod conversations {
    #[allow(clippy::large_enum_variant)]
    pub mod v1 {
        include!("../gen/conversations/v1/conversations.v1.rs");
    }
}

use conversations::v1::{
    AcpAgent, AnyAgent, ConversationInfo, ConversationUpdate, GetConversationRequest, IngestConversationRequest,
    ListConversationsRequest, LocalWorkspace, WatchConversationUpdatesRequest, Workspace, any_agent,
    conversation_ingest_service_client::ConversationIngestServiceClient,
    conversation_service_client::ConversationServiceClient, watch_conversation_updates_request,
    watch_conversation_updates_response::Content, workspace,
};

/// Adds the access key to each request.
#[derive(Clone)]
struct Authenticate(AsciiMetadataValue);

impl tonic::service::Interceptor for Authenticate {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("x-access-token", self.0.clone());
        Ok(request)
    }
}

type Authenticated = InterceptedService<Channel, Authenticate>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let endpoint = Endpoint::from_shared(format!("http://{}", env::var("GRPC_ADDRESS")?))?;
    let authenticate = Authenticate(env::var("ACCESS_KEY")?.parse()?);
    let channel = endpoint.connect().await?;
    let mut ingest = ConversationIngestServiceClient::with_interceptor(channel.clone(), authenticate.clone());
    let mut reader = ConversationServiceClient::with_interceptor(channel, authenticate);
    let id = Uuid::new_v4().to_string();

    let first = send(&mut ingest, &id, "first").await?;
    println!("ingested as update {first}");

    let request = GetConversationRequest { id: id.clone(), ..Default::default() };
    let read = reader.get_conversation(request).await?.into_inner().conversation.ok_or("no record")?;
    assert_eq!((read.title(), read.max_iterations()), ("first", 500));
    println!("read");

    let request = ListConversationsRequest { page_size: 10, ..Default::default() };
    let list = reader.list_conversations(request).await?.into_inner();
    assert_eq!(list.conversations[0].summary.as_ref().ok_or("no summary")?.id, id);
    println!("listed");

    assert_eq!(next_after(&mut reader, &id, first - 1).await?.sequence, first);
    let second = send(&mut ingest, &id, "second").await?;
    let update = next_after(&mut reader, &id, first).await?;
    assert_eq!(update.sequence, second);
    assert_eq!(update.summary.ok_or("no summary")?.title(), "second");
    println!("watched, and resumed after update {first}");

    let incomplete = ConversationInfo { id: Some(id), ..Default::default() };
    let request = IngestConversationRequest { conversation: Some(incomplete) };
    let status = ingest.ingest_conversation(request).await.expect_err("an incomplete record was taken");
    let refusal = violations(&status).join(", ");
    assert_eq!(refusal, "conversation.workspace is missing, conversation.agent is missing");
    println!("refused: {refusal}");
    Ok(())
}

/// Ingests the conversation with a title. Returns the sequence number of the update.
async fn send(
    client: &mut ConversationIngestServiceClient<Authenticated>,
    id: &str,
    title: &str,
) -> Result<i64, Status> {
    let workspace = LocalWorkspace { working_dir: Some("/workspace".into()) };
    let agent = AcpAgent { acp_command: vec!["acp".into()], ..Default::default() };
    let conversation = ConversationInfo {
        id: Some(id.into()),
        title: Some(title.into()),
        workspace: Some(Workspace { kind: Some(workspace::Kind::LocalWorkspace(workspace)) }),
        agent: Some(AnyAgent { kind: Some(any_agent::Kind::AcpAgent(agent)) }),
        ..Default::default()
    };
    let request = IngestConversationRequest { conversation: Some(conversation) };
    Ok(client.ingest_conversation(request).await?.into_inner().sequence)
}

/// Returns the conversation's first update after a sequence number. Reconnects when the stream breaks.
async fn next_after(
    client: &mut ConversationServiceClient<Authenticated>,
    id: &str,
    mut sequence: i64,
) -> Result<ConversationUpdate, Status> {
    loop {
        match follow(client, id, &mut sequence).await {
            Ok(Some(update)) => return Ok(update),
            Err(status) if status.code() != Code::Unavailable => return Err(status),
            _ => tokio::time::sleep(Duration::from_millis(250)).await,
        }
    }
}

/// Follows one stream until its first update. Writes the last received sequence number to `sequence`.
async fn follow(
    client: &mut ConversationServiceClient<Authenticated>,
    id: &str,
    sequence: &mut i64,
) -> Result<Option<ConversationUpdate>, Status> {
    let request = WatchConversationUpdatesRequest {
        start: Some(watch_conversation_updates_request::Start::AfterSequence(*sequence)),
        conversation_id: id.into(),
        ..Default::default()
    };
    let mut stream = client.watch_conversation_updates(request).await?.into_inner();
    while let Some(response) = stream.message().await? {
        if let Some(Content::Update(update)) = response.content {
            return Ok(Some(update));
        }
        *sequence = response.sequence;
    }
    Ok(None)
}

/// Returns the field violations of the BadRequest in the details of a status.
fn violations(status: &Status) -> Vec<String> {
    let found = status.get_details_bad_request().map(|bad_request| bad_request.field_violations).unwrap_or_default();
    found.into_iter().map(|violation| format!("{} is {}", violation.field, violation.reason)).collect()
}
