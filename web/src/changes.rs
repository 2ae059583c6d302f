//! Requests that change the cluster. Each names its object a second time, as a confirmation.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::post;
use serde::Deserialize;

use crate::guard::Refusal;
use crate::server::{Server, Shared, change, problem};
use crate::source::Change;

/// The largest body of a change.
const BODY_BYTES_MAX: usize = 1 << 10;

pub(crate) const NOT_ALLOWED: Refusal = (
    StatusCode::FORBIDDEN,
    "this page changes nothing",
    "start it with 'starling web --allow-changes', or use 'starling job' and 'starling node'",
);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Confirmed {
    /// The job or the node, as in the address.
    confirm: String,
}

/// Makes the change of an object.
type Make = fn(String) -> Change;

const JOBS: [(&str, Make); 2] =
    [("cancel", |job| Change::CancelJob { job }), ("retry", |job| Change::RetryJob { job })];
const NODES: [(&str, Make); 3] = [
    ("drain", |node| Change::DrainNode { node }),
    ("pause", |node| Change::PauseNode { node }),
    ("resume", |node| Change::ResumeNode { node }),
];

pub(crate) fn routes() -> Router<Arc<Shared>> {
    let jobs = JOBS.map(|(what, make)| (format!("/api/v1/jobs/{{id}}/{what}"), make));
    let nodes = NODES.map(|(what, make)| (format!("/api/v1/nodes/{{id}}/{what}"), make));
    let mut routes = Router::new();
    for (path, make) in jobs.into_iter().chain(nodes) {
        let handle = move |State(server): Server,
                           Path(id): Path<String>,
                           headers: HeaderMap,
                           body: Bytes| async move {
            match check(&id, &headers, &body) {
                Ok(()) => change(&server, make(id), &headers).await,
                Err(refused) => *refused,
            }
        };
        routes = routes.route(&path, post(handle));
    }
    routes.layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// Checks that a request is JSON, which no form of another site can send, and names its object.
fn check(id: &str, headers: &HeaderMap, body: &[u8]) -> Result<(), Box<Response>> {
    let refuse = |status, text: &str, hint: &str| Err(Box::new(problem(status, text, Some(hint))));
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    let hint = format!("send {{\"confirm\": \"{id}\"}} as application/json");
    if !kind.eq_ignore_ascii_case("application/json") {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the request is not JSON", &hint);
    }
    match serde_json::from_slice::<Confirmed>(body) {
        Ok(confirmed) if confirmed.confirm == id => Ok(()),
        _ => refuse(StatusCode::BAD_REQUEST, "the change is not confirmed", &hint),
    }
}
