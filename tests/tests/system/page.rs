//! The live page, metrics and the view in the terminal, over real clusters.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use starling_tests::{Foreground, Instance, Running, Sandbox, Shape, repository, skip, wait_until};

const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// A served page.
struct Page {
    process: Running,
    url: String,
    at: String,
    token: String,
}

impl Page {
    fn of(process: Running) -> Self {
        wait_until("the page is served", || process.output_so_far().contains('\n'));
        let told: Value = serde_json::from_str(process.output_so_far().trim()).expect("JSON");
        let url = told["url"].as_str().expect("an address").to_owned();
        let (at, token) = url.split_once("/#t=").expect("the token is in the fragment");
        let at = at.strip_prefix("http://").expect("it is plain HTTP").to_owned();
        let port = at.strip_prefix("127.0.0.1:").expect("it is on loopback");
        let ssh = told["ssh"].as_str().expect("a command");
        assert!(ssh.starts_with(&format!("ssh -L {port}:127.0.0.1:{port} ")), "{ssh}");
        let token = token.to_owned();
        Self { process, url, at, token }
    }

    /// The status and the body of an answer.
    fn get(&self, path: &str, headers: &[&str]) -> (u16, String) {
        get(&self.at, path, headers)
    }

    fn ask(&self, path: &str) -> (u16, Value) {
        let (status, body) = self.get(path, &[&format!("Authorization: Bearer {}", self.token)]);
        let value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body}"));
        (status, value)
    }

    fn answer(&self, path: &str) -> Value {
        let (status, value) = self.ask(path);
        assert_eq!(status, 200, "{path}: {value}");
        value
    }
}

fn get(at: &str, path: &str, headers: &[&str]) -> (u16, String) {
    let more: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n{more}Connection: close\r\n\r\n");
    let mut stream = TcpStream::connect(at).expect("the server listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("it answers");
    let all = String::from_utf8_lossy(&all).into_owned();
    let (head, body) = all.split_once("\r\n\r\n").expect("there is a head");
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
    let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    assert!(!is_chunked, "answers have their length");
    (status, body.to_owned())
}

/// A job of two kinds, one of which fails, and a name that is HTML.
fn mixed(instance: &Instance) -> String {
    let text = format!(
        "[[task]]\nname='make-{{i}}'\narray='1-8'\n\
         command=['sh','-c','head -c 50000 /dev/zero > {{out:o}}; echo made {{i}}']\n\
         outputs={{o='o{{i}}'}}\n\
         [[task]]\nname='use-{{i}}'\narray='1-8'\n\
         command=['sh','-c','cat {{in:a}} {{in:b}} > /dev/null; echo no /tmp/{{i}} >&2; exit 3']\n\
         inputs={{a='o{{i}}',b='o1'}}\n\
         [[task]]\nname='{HOSTILE}'\n\
         command=['sh','-c','echo \"<b>out</b>\"; echo \"<script>alert(2)</script>\" >&2']\n"
    );
    instance.sandbox().write("mixed.toml", text);
    let submitted = instance.json(&["submit", "--file", "mixed.toml"]);
    let id = submitted["job"].as_str().expect("the number of a job").to_owned();
    instance.starling(&["job", "wait", &id]).expect_code(1);
    id
}

#[test]
fn the_page_has_the_figures_of_the_command_line_and_goes_on_without_any_node() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    let id = mixed(&instance);
    let page = Page::of(instance.start(&["web", "--json"]));
    assert_eq!(page.get("/api/v1/overview", &[]).0, 401);
    assert_eq!(page.get("/api/v1/overview", &["Authorization: Bearer x"]).0, 401);
    let bearer = format!("Authorization: Bearer {}", page.token);
    assert_eq!(page.get("/api/v1/overview", &[&bearer, "Origin: http://evil.example"]).0, 403);

    let seen = page.answer("/api/v1/overview");
    assert_eq!(seen["nodes"].as_array().map(Vec::len), Some(3));
    assert_eq!(seen["figures"].as_array().map(Vec::len), Some(3));
    let listed = instance.json(&["job", "list"]);
    assert_eq!(seen["jobs"], listed["jobs"], "the list is that of 'job list'");

    let report = page.answer(&format!("/api/v1/jobs/{id}/report"));
    let printed = instance.json(&["report", &id]);
    for field in ["tasks", "attempts", "kinds", "failures", "links", "busy_s", "bytes_moved"] {
        assert_eq!(report[field], printed[field], "{field}");
    }
    let failures = report["failures"].as_array().expect("a list");
    assert_eq!((failures.len(), &failures[0]["tasks"]), (1, &8.into()));
    let of_kind = |kind: &str| {
        let all = report["progress"].as_array().expect("a list");
        all.iter().find(|it| it["kind"] == kind).expect("the kind").clone()
    };
    assert_eq!((&of_kind("make")["done"], &of_kind("make")["total"]), (&8.into(), &8.into()));
    assert_eq!(of_kind("use")["failed"], 8);

    let tasks = page.answer(&format!("/api/v1/jobs/{id}/tasks?name=%3Cimg"));
    assert_eq!((&tasks["matching"], &tasks["tasks"][0]["name"]), (&1.into(), &HOSTILE.into()));
    let task = tasks["tasks"][0]["id"].as_str().expect("an id");
    let explained = page.answer(&format!("/api/v1/jobs/{id}/tasks/{task}"));
    let by_hand = instance.json(&["task", "explain", &id, task]);
    assert_eq!((&explained["lines"], &explained["task"]), (&by_hand["lines"], &by_hand["task"]));
    let output = page.answer(&format!("/api/v1/jobs/{id}/tasks/{task}/output?stream=stderr"));
    assert_eq!(output["text"], "<script>alert(2)</script>\n");
    assert_eq!(page.ask("/api/v1/jobs/77/report").0, 404);
    assert_eq!(page.ask("/api/v1/jobs/x/report").0, 400);
    assert_eq!(page.ask(&format!("/api/v1/jobs/{id}/tasks/0.999999")).0, 404);

    instance.kill(0);
    wait_until("the page shows that node 0 is lost", || {
        let (status, seen) = page.ask("/api/v1/overview");
        status == 200 && seen["nodes"][0]["state"] == "down"
    });
    wait_until("the page has the job from the other nodes", || {
        let (status, seen) = page.ask("/api/v1/overview");
        status == 200 && seen["jobs"][0]["job"] == id.as_str() && seen["jobs_missing"].is_null()
    });
    let seen = page.answer("/api/v1/overview");
    let changes = seen["changes"].as_array().expect("a list");
    let is_loss = |it: &&Value| it["node"] == 0 && it["text"] == "is down (was up)";
    assert_eq!(changes.iter().filter(is_loss).count(), 1, "{changes:?}");
    assert!(page.process.errors_so_far().lines().count() <= 2, "it warns on the page only");
    instance.start_missing();
}

#[test]
fn the_page_can_change_nothing_and_leaks_no_token() {
    let instance = Instance::up(1, 1);
    let page = Page::of(instance.start(&["web", "--json"]));
    let line = fs::read(format!("/proc/{}/cmdline", page.process.pid())).expect("it runs");
    assert!(!String::from_utf8_lossy(&line).contains(&page.token));
    assert!(!page.process.errors_so_far().contains(&page.token));
    // With the key of an observer alone the page is the same.
    fs::rename(
        instance.directory().join("keys/client.pem"),
        instance.directory().join("keys/away.pem"),
    )
    .expect("the key is there");
    let second = Page::of(instance.start(&["web", "--json"]));
    assert_ne!(second.token, page.token);
    assert_eq!(second.answer("/api/v1/overview")["nodes"][0]["state"], "up");
    assert_eq!(
        second.get("/api/v1/overview", &[&format!("Authorization: Bearer {}", page.token)]).0,
        401
    );
    fs::rename(
        instance.directory().join("keys/away.pem"),
        instance.directory().join("keys/client.pem"),
    )
    .expect("the key is there");
}

#[test]
fn a_port_that_is_taken_and_wrong_sources_have_clear_answers() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    sandbox
        .starling(&["run", "bag:tasks=20,duration=1ms", "--slots", "2", "--record", "a.srr"])
        .ok();
    let refused = sandbox.starling(&["web", "--from", "a.srr", "--port", &port]).expect_code(4);
    assert!(refused.stderr.contains(&format!("port {port} is taken")), "{refused:?}");
    assert!(refused.stderr.contains("leave --port out"), "{refused:?}");
    let absent = sandbox.starling(&["web", "--from", "b.srr"]).expect_code(4);
    assert!(absent.stderr.contains("b.srr"), "{absent:?}");
    let whole = fs::read(sandbox.path("a.srr")).expect("it was written");
    sandbox.write("cut.srr", &whole[..whole.len() / 2]);
    let cut = sandbox.starling(&["web", "--from", "cut.srr"]).expect_code(4);
    assert!(cut.stderr.contains("cut.srr") && cut.stderr.contains("hint:"), "{cut:?}");
    sandbox.starling(&["web", "--dir", "nowhere"]).expect_code(3);
    let prefix = sandbox.starling(&["web", "--from", "a.srr", "--prefix", "node"]).expect_code(2);
    assert!(prefix.stderr.contains("/node/h/123"), "{prefix:?}");

    let page = Page::of(sandbox.start(&["web", "--from", "a.srr", "--json"]));
    let seen = page.answer("/api/v1/overview");
    assert_eq!((&seen["source"], &seen["jobs"][0]["total"]), (&"records".into(), &20.into()));
    assert_eq!(page.answer("/api/v1/jobs/1/report")["tasks"]["done"], 20);
    assert_eq!(page.answer("/api/v1/jobs/1/tasks?state=done")["matching"], 20);
    assert_eq!(page.ask("/api/v1/store").0, 404);
}

#[test]
fn metrics_are_printed_and_served_to_the_bearer() {
    let instance = Instance::up(2, 2);
    mixed(&instance);
    let text = instance.starling(&["metrics"]).ok().stdout;
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in [
        "starling_node_up{node=\"n0\"} 1.0",
        "starling_node_up{node=\"n1\"} 1.0",
        "starling_slots{node=\"n0\"} 2.0",
        "starling_jobs{state=\"failed\"} 1.0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in {text}");
    }
    let failed = text.lines().filter(|it| {
        it.starts_with("starling_ended_attempts_total{") && it.contains("outcome=\"failed\"")
    });
    let failed: u64 = failed.map(|it| it.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(failed, instance.json(&["job", "list"])["jobs"][0]["failed"], "{text}");
    let wide = instance.starling(&["metrics", "--listen", "0.0.0.0:0"]).expect_code(2);
    assert!(wide.stderr.contains("not on loopback"), "{wide:?}");

    let server = instance.start(&["metrics", "--listen", "127.0.0.1:0"]);
    wait_until("metrics are served", || server.output_so_far().contains('\n'));
    let url = server.output_so_far();
    let at = url.trim().strip_prefix("http://").and_then(|it| it.strip_suffix("/metrics"));
    let at = at.expect("an address");
    let path = instance.directory().join("metrics.token");
    let mode = fs::metadata(&path).expect("the token was made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = fs::read_to_string(&path).expect("it is text");
    let bearer = format!("Authorization: Bearer {}", token.trim());
    assert_eq!(get(at, "/metrics", &[]).0, 401);
    let (status, served) = get(at, "/metrics", &[&bearer]);
    assert_eq!(status, 200);
    assert!(served.contains("starling_node_up{node=\"n1\"} 1.0"), "{served}");
    assert_eq!(get(at, "/api/v1/overview", &[&bearer]).0, 404);
}

#[test]
fn top_prints_all_views_once() {
    let instance = Instance::up(2, 2);
    let id = mixed(&instance);
    let text = instance.starling(&["top", "--once"]).ok().stdout;
    for part in ["nodes 2 of 2 up", "jobs, the newest first", &format!("kinds of job {id}"), "n1"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let use_kind = text.lines().find(|line| line.starts_with("use ")).expect("the kind 'use'");
    assert!(use_kind.split_whitespace().last() == Some("8"), "{use_kind}");
    let no_terminal = instance.starling(&["top"]).expect_code(2);
    assert!(no_terminal.stderr.contains("--once"), "{no_terminal:?}");
}

#[test]
fn top_shows_run_records_without_a_cluster() {
    let sandbox = Sandbox::new();
    let record = sandbox.path("run.srr").display().to_string();
    sandbox.starling(&["run", "bag:tasks=7,body=noop", "--record", &record]).ok();
    let text = sandbox.starling(&["top", "--once", "--from", &record]).ok().stdout;
    assert!(text.starts_with("1 run record of "), "{text}");
    let finished = text.lines().find(|line| line.contains("finished")).expect("the row of the run");
    assert!(finished.split_whitespace().any(|cell| cell == "7"), "{finished}");
    assert!(text.contains("\nkinds of job "), "{text}");
    let overview = sandbox.starling(&["top", "--once", "--json", "--from", &record]).json();
    assert_eq!(overview["source"], "records", "{overview}");
    let none = sandbox.starling(&["top", "--once", "--from", "none.srr"]).expect_code(4);
    assert!(none.stderr.contains("none.srr"), "{none:?}");
}

#[test]
fn a_node_serves_the_page_of_its_cluster() {
    let mut shape = Shape::new(2, 1, 2);
    shape.flags.insert(0, vec!["--web".to_owned(), "127.0.0.1:0".to_owned()]);
    let mut cluster = Foreground::up(Sandbox::new(), shape);
    let said = cluster.said(0);
    let line = said.lines().find_map(|line| line.split_once("the live page: ")).expect("a line");
    let (at, token) = line.1.split_once("/#t=").expect("the token is in the fragment");
    let at = at.strip_prefix("http://").expect("it is plain HTTP");
    let bearer = format!("Authorization: Bearer {token}");
    let shown = || -> Value {
        let (status, body) = get(at, "/api/v1/overview", &[&bearer]);
        if status == 200 { serde_json::from_str(&body).expect("JSON") } else { Value::Null }
    };
    wait_until("the page shows both nodes", || {
        shown()["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2)
    });
    assert_eq!(get(at, "/api/v1/overview", &[]).0, 401, "it needs the token");
    assert!(!cluster.said(1).contains("the live page"), "{}", cluster.said(1));
    cluster.kill(1);
    wait_until("the page shows that node 1 is lost", || shown()["nodes"][1]["state"] == "down");

    let sandbox = cluster.sandbox();
    let refused = sandbox.starling(&["node", "--web", "0.0.0.0:0"]).expect_code(2);
    assert!(refused.stderr.contains("ssh -L"), "{refused:?}");
    let taken = sandbox.starling(&["node", "--web", at]).expect_code(4);
    assert!(taken.stderr.contains("127.0.0.1:0 takes a free port"), "{taken:?}");
}

/// Node with the packages of the page, and Chromium.
struct Browser {
    app: PathBuf,
    chromium: &'static str,
}

impl Browser {
    /// Or the reason why there is none.
    fn find() -> Result<Self, &'static str> {
        let app = repository().join("web/app");
        if Command::new("node").arg("--version").output().is_err() {
            return Err("node is absent");
        }
        if !app.join("node_modules/playwright-core").is_dir() {
            return Err("the packages of web/app are absent ('npm ci' there installs them)");
        }
        let places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
        let found = places.into_iter().find(|path| fs::metadata(path).is_ok());
        Ok(Self { app, chromium: found.ok_or("Chromium is absent")? })
    }

    /// Runs a file of tests.
    fn run(&self, file: &str, page: &Page, variables: &[(&str, &str)]) {
        let mut command = Command::new("node");
        command.arg("--test").arg(self.app.join("test").join(file));
        command.env("STARLING_URL", &page.url).env("STARLING_CHROMIUM", self.chromium);
        command.envs(variables.iter().copied());
        let ran = command.output().expect("node starts");
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{text}\n{}", String::from_utf8_lossy(&ran.stderr));
    }
}

/// Runs the page in a real browser. Skipped where node, the packages or Chromium are missing.
#[test]
fn a_browser_shows_the_page() {
    let browser = match Browser::find() {
        Ok(browser) => browser,
        Err(why) => return skip(why),
    };
    let mut instance = Instance::up_with_copies(3, 2, 2);
    let id = mixed(&instance);
    let page = Page::of(instance.start(&["web", "--json"]));
    browser.run("page.mjs", &page, &[("STARLING_JOB", &id)]);
    instance.kill(0);
    browser.run("lost_node.mjs", &page, &[("STARLING_JOB", &id)]);
    instance.start_missing();
}

/// The buttons of the page do what they say, after a question.
#[test]
fn a_browser_makes_changes_where_they_are_allowed() {
    let browser = match Browser::find() {
        Ok(browser) => browser,
        Err(why) => return skip(why),
    };
    let instance = Instance::up(2, 1);
    let ended = mixed(&instance);
    let submitted = instance.json(&["submit", "--array", "1-4", "--", "sleep", "600"]);
    let running = submitted["job"].as_str().expect("the number of a job").to_owned();
    let page = Page::of(instance.start(&["web", "--allow-changes", "--json"]));
    let variables = [("STARLING_JOB", ended.as_str()), ("STARLING_RUNNING_JOB", &running)];
    browser.run("changes.mjs", &page, &variables);
    let state = instance.json(&["job", "info", &running])["state"].clone();
    assert_eq!(state, "cancelled", "the page has cancelled it");
}
