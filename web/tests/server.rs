//! The routes of the server and its rules, over real connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use web::{Answer, Body, Change, Guard, Problem, ProblemKind, Question, Settings, Source, Token};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// Answers each question with its own text.
struct Echo;

impl Source for Echo {
    fn answer(&self, question: Question) -> Answer {
        let answer = match &question {
            Question::Report { job } if job == "9" => {
                Err(Problem::absent("job 9 is not known").hint("see the list"))
            }
            Question::Report { job } if job == "8" => {
                Err(Problem::new(ProblemKind::Away, "no node answers"))
            }
            Question::Store => Ok(Body::Json(format!("[{}]", "0,".repeat(4096)))),
            Question::Record { .. } => Ok(Body::Bytes(vec![0x89, 0, 255])),
            Question::Metrics => Ok(Body::Metrics("# EOF\n".to_owned())),
            Question::Task { .. } => {
                Ok(Body::Json(serde_json::json!({ "name": HOSTILE }).to_string()))
            }
            other => Ok(Body::Json(serde_json::json!(format!("{other:?}")).to_string())),
        };
        Box::pin(async move { answer })
    }

    fn change(&self, change: Change) -> Answer {
        let answer = Body::Json(serde_json::json!(format!("{change:?}")).to_string());
        Box::pin(async move { Ok(answer) })
    }
}

fn start(settings: Settings, hosts: &[&str]) -> SocketAddr {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("threads can be started");
    let bound = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
    let listener = bound.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let token = Token::of_text(TOKEN).expect("it is long enough");
    let guard = Guard::new(token, hosts.iter().map(|it| (*it).to_owned()).collect());
    std::thread::spawn(move || {
        runtime.block_on(web::serve(listener, Arc::new(Echo), guard, &settings))
    });
    address
}

struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| {
            line.split_once(':').is_some_and(|(key, _)| key.eq_ignore_ascii_case(name))
        })?;
        line.split_once(": ").map(|(_, value)| value)
    }
}

/// Sends the bytes of a request as they are.
fn send(to: SocketAddr, request: &str) -> Reply {
    let mut stream = TcpStream::connect(to).expect("the server listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("it answers");
    let end = all.windows(4).position(|it| it == b"\r\n\r\n").expect("there is a head");
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("there is a status");
    Reply { status, head, body: all[end + 4..].to_vec() }
}

fn get(to: SocketAddr, path: &str, headers: &[&str]) -> Reply {
    let more: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let host = match headers.iter().any(|line| line.starts_with("Host:")) {
        true => String::new(),
        false => format!("Host: {to}\r\n"),
    };
    send(to, &format!("GET {path} HTTP/1.1\r\n{host}{more}Connection: close\r\n\r\n"))
}

fn bearer() -> String {
    format!("Authorization: Bearer {TOKEN}")
}

#[test]
fn the_page_needs_no_token_and_has_strict_rules() {
    let at = start(Settings::default(), &[]);
    for (path, kind) in
        [("/", "text/html"), ("/app.js", "text/javascript"), ("/app.css", "text/css")]
    {
        let reply = get(at, path, &[]);
        assert_eq!(reply.status, 200, "{path}");
        assert!(reply.header("content-type").unwrap_or_default().starts_with(kind));
        assert_eq!(reply.header("content-encoding"), Some("gzip"));
        let policy = reply.header("content-security-policy").unwrap_or_default();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
}

#[test]
fn data_needs_the_token() {
    let at = start(Settings::default(), &[]);
    for path in ["/api/v1/overview", "/api/v1/jobs/1/report", "/metrics", "/api/v1/store"] {
        let without = get(at, path, &[]);
        assert_eq!(without.status, 401, "{path}");
        assert!(without.text().contains("the token is missing"), "{}", without.text());
        assert_eq!(without.header("www-authenticate"), Some("Bearer"));
        let wrong = get(at, path, &["Authorization: Bearer 0123456789abcdef0123456789abcdee"]);
        assert_eq!(wrong.status, 401, "{path}");
        assert!(wrong.text().contains("the token is wrong"));
        assert!(!wrong.text().contains(TOKEN) && !without.text().contains(TOKEN));
        assert_eq!(get(at, path, &[&bearer()]).status, 200, "{path}");
    }
    // A token in the address does not count: addresses are in logs.
    assert_eq!(get(at, &format!("/api/v1/overview?t={TOKEN}"), &[]).status, 401);
    assert_eq!(get(at, "/api/v1/overview", &[&format!("Cookie: t={TOKEN}")]).status, 401);
}

#[test]
fn other_names_and_sites_are_refused_before_the_token_counts() {
    let at = start(Settings::default(), &["proxy.example"]);
    let bearer = bearer();
    let status = |headers: &[&str]| {
        let mut all = vec![bearer.as_str()];
        all.extend(headers);
        let reply = get(at, "/api/v1/overview", &all);
        assert!(reply.header("content-security-policy").is_some());
        reply.status
    };
    assert_eq!(status(&["Host: evil.example"]), 421);
    assert_eq!(status(&["Host: 127.0.0.1.evil.example"]), 421);
    assert_eq!(status(&["Host: proxy.example", "Origin: https://proxy.example"]), 200);
    assert_eq!(status(&["Host: localhost:8787", "Origin: http://localhost:8787"]), 200);
    assert_eq!(status(&["Origin: http://evil.example"]), 403);
    assert_eq!(status(&["Origin: null"]), 403);
    assert_eq!(status(&["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors"]), 403);
    assert_eq!(status(&["Sec-Fetch-Site: same-site"]), 403);
    assert_eq!(status(&["Sec-Fetch-Site: same-origin"]), 200);
}

#[test]
fn nothing_can_be_changed() {
    let at = start(Settings::default(), &[]);
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let bearer = bearer();
        let reply = send(
            at,
            &format!(
                "{method} /api/v1/overview HTTP/1.1\r\nHost: {at}\r\n{bearer}\r\n\
                 Content-Length: 0\r\nConnection: close\r\n\r\n"
            ),
        );
        assert_eq!(reply.status, 405, "{method}");
    }
}

const CHANGES: [&str; 5] = [
    "/api/v1/jobs/3/cancel",
    "/api/v1/jobs/3/retry",
    "/api/v1/nodes/3/drain",
    "/api/v1/nodes/3/pause",
    "/api/v1/nodes/3/resume",
];

fn post(to: SocketAddr, path: &str, headers: &[&str], body: &str) -> Reply {
    let more: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    send(
        to,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: {to}\r\n{more}Content-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        ),
    )
}

#[test]
fn without_leave_each_change_is_refused() {
    let at = start(Settings::default(), &[]);
    for path in CHANGES {
        let reply = post(at, path, &[&bearer(), JSON], r#"{"confirm":"3"}"#);
        assert_eq!(reply.status, 403, "{path}");
        assert!(reply.text().contains("this page changes nothing"), "{}", reply.text());
        assert!(reply.text().contains("--allow-changes"), "{}", reply.text());
    }
}

const JSON: &str = "Content-Type: application/json";

#[test]
fn an_allowed_change_needs_the_token_this_site_and_a_confirmation() {
    let at = start(Settings { allow_changes: true, ..Settings::default() }, &[]);
    let bearer = bearer();
    for path in CHANGES {
        let with = |headers: &[&str], body: &str| post(at, path, headers, body);
        let good = r#"{"confirm":"3"}"#;
        let done = with(&[&bearer, JSON], good);
        assert_eq!(done.status, 200, "{path}: {}", done.text());
        let word = path.rsplit('/').next().expect("it has parts");
        assert!(done.text().to_lowercase().contains(word), "{}", done.text());
        assert_eq!(with(&[&bearer, JSON, &format!("Origin: http://{at}")], good).status, 200);
        assert_eq!(with(&[&bearer, JSON, "Origin: http://evil.example"], good).status, 403);
        assert_eq!(with(&[&bearer, JSON, "Sec-Fetch-Site: cross-site"], good).status, 403);
        assert_eq!(with(&[JSON], good).status, 401);
        assert_eq!(with(&["Authorization: Bearer no", JSON], good).status, 401);
        assert_eq!(with(&[&bearer], good).status, 415);
        assert_eq!(with(&[&bearer, "Content-Type: text/plain"], good).status, 415);
        for body in ["", "{}", r#"{"confirm":"4"}"#, r#"{"confirm":3}"#] {
            let refused = with(&[&bearer, JSON], body);
            assert_eq!(refused.status, 400, "{body}");
            assert!(refused.text().contains("not confirmed"), "{}", refused.text());
        }
        assert_eq!(with(&[&bearer, JSON], &" ".repeat(2000)).status, 413);
        assert_eq!(get(at, path, &[&bearer]).status, 405, "{path}");
    }
    assert_eq!(post(at, "/api/v1/overview", &[&bearer, JSON], "{}").status, 405);
    assert_eq!(post(at, "/api/v1/jobs/3/forget", &[&bearer, JSON], "{}").status, 404);
}

#[test]
fn paths_lead_nowhere_else() {
    let at = start(Settings::default(), &[]);
    for path in ["/../Cargo.toml", "/%2e%2e/Cargo.toml", "/etc/passwd", "/app.js/", "/api", "/x"] {
        assert_eq!(get(at, path, &[&bearer()]).status, 404, "{path}");
    }
}

#[test]
fn questions_have_the_parts_of_the_address() {
    let at = start(Settings::default(), &[]);
    let asked = |path: &str| get(at, path, &[&bearer()]).text();
    let text = asked("/api/v1/jobs/3/tasks?state=failed&kind=a%20b&name=%3Cb%3E&skip=100");
    for part in ["job: \\\"3\\\"", "state: \\\"failed\\\"", "a b", "<b>", "skip: 100"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(asked("/api/v1/jobs/3/tasks/7.4/output?stream=stderr").contains("stderr: true"));
    assert!(asked("/api/v1/jobs/3/tasks/7.4/output").contains("stderr: false"));
    assert_eq!(get(at, "/api/v1/jobs/3/tasks?skip=x", &[&bearer()]).status, 400);
    assert_eq!(get(at, "/api/v1/jobs/3/tasks?limit=5", &[&bearer()]).status, 400);
    assert_eq!(get(at, "/api/v1/jobs/3/tasks/1/output?stream=no", &[&bearer()]).status, 400);
    assert_eq!(get(at, "/api/v1/jobs/3/tasks/1/output?stderr=true", &[&bearer()]).status, 400);
    let absent = get(at, "/api/v1/jobs/9/report", &[&bearer()]);
    assert_eq!(absent.status, 404);
    assert_eq!(absent.text(), r#"{"error":"job 9 is not known","hint":"see the list"}"#);
    assert_eq!(get(at, "/api/v1/jobs/8/report", &[&bearer()]).status, 503);
}

#[test]
fn answers_have_types_that_no_browser_runs() {
    let at = start(Settings::default(), &[]);
    let task = get(at, "/api/v1/jobs/1/tasks/0.1", &[&bearer()]);
    assert_eq!(task.header("content-type"), Some("application/json"));
    assert!(task.text().contains(HOSTILE), "JSON carries it, and the page shows it as text");
    let record = get(at, "/api/v1/jobs/1/record", &[&bearer()]);
    assert_eq!(record.header("content-type"), Some("application/octet-stream"));
    assert_eq!(record.body, [0x89, 0, 255]);
    let metrics = get(at, "/metrics", &[&bearer()]);
    assert!(metrics.header("content-type").unwrap_or_default().contains("openmetrics-text"));
    let store = get(at, "/api/v1/store", &[&bearer(), "Accept-Encoding: gzip"]);
    assert_eq!(store.header("content-encoding"), Some("gzip"));
    assert!(store.body.len() < 1024);
}

#[test]
fn a_proxy_may_keep_its_prefix() {
    let settings =
        Settings { prefix: "/node/h/123".to_owned(), metrics_only: false, allow_changes: false };
    let at = start(settings, &["ood.example"]);
    let host = "Host: ood.example";
    assert_eq!(get(at, "/node/h/123/", &[host]).status, 200);
    assert_eq!(get(at, "/node/h/123/app.js", &[host]).status, 200);
    let bare = get(at, "/node/h/123", &[host]);
    assert_eq!((bare.status, bare.header("location")), (307, Some("/node/h/123/")));
    assert_eq!(get(at, "/node/h/123/api/v1/overview", &[host]).status, 401);
    assert_eq!(get(at, "/node/h/123/api/v1/overview", &[host, &bearer()]).status, 200);
    assert_eq!(get(at, "/api/v1/overview", &[host, &bearer()]).status, 404);
}

#[test]
fn a_server_of_metrics_has_nothing_else() {
    let at =
        start(Settings { prefix: String::new(), metrics_only: true, allow_changes: false }, &[]);
    assert_eq!(get(at, "/metrics", &[&bearer()]).text(), "# EOF\n");
    assert_eq!(get(at, "/metrics", &[]).status, 401);
    assert_eq!(get(at, "/", &[]).status, 404);
    assert_eq!(get(at, "/api/v1/overview", &[&bearer()]).status, 404);
}
