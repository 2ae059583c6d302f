//! The routes, and the answers to requests.

use std::io::Write;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::serve::Listener;
use serde::Deserialize;

use crate::assets;
use crate::changes;
use crate::guard::{Guard, NO_METHOD, Refusal};
use crate::source::{Body, Change, Problem, ProblemKind, Question, Source, TaskFilter};

/// Nothing but the files of this server runs or is loaded.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src 'self' data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";
/// Smaller answers are not compressed.
const SMALL_BYTES: usize = 2 << 10;

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The path before all addresses, if a proxy does not remove it; such as `/node/h/123`.
    pub prefix: String,
    /// Only `/metrics`, without the page.
    pub metrics_only: bool,
    /// Requests that change the cluster are carried out; without it they are refused.
    pub allow_changes: bool,
}

pub(crate) struct Shared {
    guard: Guard,
    allow_changes: bool,
    source: Arc<dyn Source>,
}

pub(crate) type Server = State<Arc<Shared>>;

/// Answers requests until the process ends.
///
/// # Errors
/// The listener fails.
pub async fn serve<L>(
    listener: L,
    source: Arc<dyn Source>,
    guard: Guard,
    settings: &Settings,
) -> std::io::Result<()>
where
    L: Listener,
    L::Addr: std::fmt::Debug,
{
    axum::serve(listener, router(source, guard, settings)).await
}

fn router(source: Arc<dyn Source>, guard: Guard, settings: &Settings) -> Router {
    let allow_changes = settings.allow_changes;
    let shared = Arc::new(Shared { guard, allow_changes, source });
    let ask = middleware::from_fn_with_state(Arc::clone(&shared), with_token);
    let mut data = Router::new().route("/metrics", get(metrics));
    if !settings.metrics_only {
        data = data
            .route("/api/v1/overview", get(overview))
            .route("/api/v1/store", get(store))
            .route("/api/v1/jobs/{job}/report", get(report))
            .route("/api/v1/jobs/{job}/record", get(record))
            .route("/api/v1/jobs/{job}/tasks", get(tasks))
            .route("/api/v1/jobs/{job}/tasks/{task}", get(task))
            .route("/api/v1/jobs/{job}/tasks/{task}/output", get(output));
    }
    let mut routes = data.route_layer(ask.clone());
    if !settings.metrics_only {
        let allowed = middleware::from_fn_with_state(Arc::clone(&shared), with_changes);
        routes = routes.merge(changes::routes().route_layer(ask).route_layer(allowed));
        routes = routes.route("/", get(page)).route("/{file}", get(file));
    }
    let routes = match settings.prefix.trim_matches('/') {
        "" => routes,
        prefix => {
            let (bare, slash) = (format!("/{prefix}"), format!("/{prefix}/"));
            // `nest` answers the prefix without a slash, where relative addresses would be wrong.
            let to = slash.clone();
            Router::new()
                .nest(&slash, routes)
                .route(&bare, get(move || async move { Redirect::temporary(&to) }))
        }
    };
    let site = middleware::from_fn_with_state(Arc::clone(&shared), with_rules);
    let routes = routes.fallback(absent).method_not_allowed_fallback(no_method);
    routes.layer(site).with_state(shared)
}

/// Refuses other sites and names, and sets the headers of every answer.
async fn with_rules(State(server): Server, request: Request, next: Next) -> Response {
    let checked = server.guard.check_site(request.method(), request.headers());
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(&refusal),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

/// Refuses all changes, unless they are allowed.
async fn with_changes(State(server): Server, request: Request, next: Next) -> Response {
    match server.allow_changes {
        true => next.run(request).await,
        false => refused(&changes::NOT_ALLOWED),
    }
}

async fn with_token(State(server): Server, request: Request, next: Next) -> Response {
    match server.guard.check_token(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(&refusal),
    }
}

pub(crate) fn problem(status: StatusCode, text: &str, hint: Option<&str>) -> Response {
    let body = serde_json::json!({ "error": text, "hint": hint });
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn refused(&(status, text, hint): &Refusal) -> Response {
    let mut response = problem(status, text, Some(hint));
    if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

async fn no_method() -> Response {
    refused(&NO_METHOD)
}

async fn absent() -> Response {
    problem(StatusCode::NOT_FOUND, "there is no such page", None)
}

async fn page() -> Response {
    file(Path("index.html".to_owned())).await
}

async fn file(Path(name): Path<String>) -> Response {
    let Some(file) = assets::find(&name) else { return absent().await };
    let headers = [(header::CONTENT_TYPE, file.kind), (header::CONTENT_ENCODING, "gzip")];
    (headers, file.gzip.as_slice()).into_response()
}

async fn overview(State(server): Server, headers: HeaderMap) -> Response {
    answer(&server, Question::Overview, &headers).await
}

async fn store(State(server): Server, headers: HeaderMap) -> Response {
    answer(&server, Question::Store, &headers).await
}

async fn metrics(State(server): Server, headers: HeaderMap) -> Response {
    answer(&server, Question::Metrics, &headers).await
}

async fn report(State(server): Server, Path(job): Path<String>, headers: HeaderMap) -> Response {
    answer(&server, Question::Report { job }, &headers).await
}

async fn record(State(server): Server, Path(job): Path<String>, headers: HeaderMap) -> Response {
    answer(&server, Question::Record { job }, &headers).await
}

const FILTER_HINT: &str = "its parts are state, kind, name and skip";

async fn tasks(
    State(server): Server,
    Path(job): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    match Query::<TaskFilter>::try_from_uri(&uri) {
        Ok(Query(filter)) => answer(&server, Question::Tasks { job, filter }, &headers).await,
        Err(_) => {
            problem(StatusCode::BAD_REQUEST, "the selection of tasks is wrong", Some(FILTER_HINT))
        }
    }
}

async fn task(
    State(server): Server,
    Path((job, task)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    answer(&server, Question::Task { job, task }, &headers).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    #[serde(default)]
    stream: String,
}

async fn output(
    State(server): Server,
    Path((job, task)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let stream = Query::<Stream>::try_from_uri(&uri).map(|query| query.0.stream);
    let stderr = match stream.as_deref() {
        Ok("" | "stdout") => false,
        Ok("stderr") => true,
        _ => {
            let hint = Some("it is stdout or stderr");
            return problem(StatusCode::BAD_REQUEST, "there is no such stream", hint);
        }
    };
    answer(&server, Question::Output { job, task, stderr }, &headers).await
}

async fn answer(server: &Shared, question: Question, headers: &HeaderMap) -> Response {
    respond(server.source.answer(question).await, headers)
}

fn respond(answered: Result<Body, Problem>, headers: &HeaderMap) -> Response {
    let (kind, bytes) = match answered {
        Ok(Body::Json(text)) => ("application/json", text.into_bytes()),
        Ok(Body::Metrics(text)) => (crate::metrics::CONTENT_TYPE, text.into_bytes()),
        // A record is compressed already.
        Ok(Body::Bytes(bytes)) => {
            return ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response();
        }
        Err(Problem { kind, text, hint }) => {
            let status = match kind {
                ProblemKind::Absent => StatusCode::NOT_FOUND,
                ProblemKind::Away => StatusCode::SERVICE_UNAVAILABLE,
                ProblemKind::Refused => StatusCode::BAD_REQUEST,
            };
            return problem(status, &text, hint.as_deref());
        }
    };
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    if bytes.len() < SMALL_BYTES || !accepted.is_some_and(|it| it.contains("gzip")) {
        return ([(header::CONTENT_TYPE, kind)], bytes).into_response();
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let written = encoder.write_all(&bytes).and_then(|()| encoder.finish());
    match written {
        Ok(small) => {
            let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_ENCODING, "gzip")];
            (headers, small).into_response()
        }
        Err(_) => ([(header::CONTENT_TYPE, kind)], bytes).into_response(),
    }
}

/// Makes a change that was confirmed.
pub(crate) async fn change(server: &Shared, change: Change, headers: &HeaderMap) -> Response {
    respond(server.source.change(change).await, headers)
}
