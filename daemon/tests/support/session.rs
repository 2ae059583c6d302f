//! A raw session: requests out, answers in.

use std::path::Path;

use daemon::NodeHandle;
use proto::wire;
use tonic::Streaming;

use crate::support::{call, connect};

/// One session with one node; the test waits for the answers one by one.
pub(crate) struct Session {
    requests: tokio::sync::mpsc::Sender<wire::Requests>,
    responses: Streaming<wire::Responses>,
    ahead: std::collections::VecDeque<wire::Response>,
}

impl Session {
    pub(crate) async fn open(node: &NodeHandle, dir: &Path) -> Self {
        let (requests, stream) = tokio::sync::mpsc::channel(16);
        let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
        let mut client = connect(node, dir).await;
        let responses = client.session(call(stream)).await.expect("the key is good").into_inner();
        Self { requests, responses, ahead: std::collections::VecDeque::new() }
    }

    pub(crate) async fn send(&self, id: u64, body: wire::request::Body) {
        let requests = vec![wire::Request { id, body: Some(body) }];
        self.requests.send(wire::Requests { requests }).await.expect("the session is open");
    }

    pub(crate) async fn receive(&mut self) -> wire::Response {
        while self.ahead.is_empty() {
            let frame = self
                .responses
                .message()
                .await
                .expect("the session is open")
                .expect("the session is open");
            self.ahead.extend(frame.responses);
        }
        self.ahead.pop_front().expect("checked above")
    }

    pub(crate) async fn ask(&mut self, body: wire::request::Body) -> wire::Response {
        self.send(7, body).await;
        let response = self.receive().await;
        assert_eq!(response.id, 7);
        response
    }
}
