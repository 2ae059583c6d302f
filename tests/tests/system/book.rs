//! The pages of the site: each command block runs, each link leads to a page of the site, and the
//! reference of the command line is that of the program.
//!
//! A block ```` ```sh ```` of a page runs in a directory of the page, after the blocks before it.
//! Two comments on the line before a block change this:
//! `<!-- not run: REASON -->` leaves it out, and `<!-- given: COMMANDS -->` runs commands first.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use starling_tests::{Instance, Sandbox, binary, files_below, repository, skip};

/// A block of commands of a page.
#[derive(Debug, Default)]
struct Block {
    line: usize,
    given: String,
    not_run: Option<String>,
    text: String,
}

/// The blocks of a page, in their order.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut next = Block::default();
    let mut fence = None;
    for (number, line) in (1..).zip(page.lines()) {
        let comment = |name: &str| line.strip_prefix(name)?.strip_suffix(" -->");
        match fence {
            Some("sh") if line == "```" => blocks.push(std::mem::take(&mut next)),
            Some("sh") => {
                next.text.push_str(line);
                next.text.push('\n');
            }
            _ if fence.is_some() || !line.starts_with("```") => {
                if let Some(given) = comment("<!-- given: ") {
                    next.given = given.to_owned();
                }
                if let Some(reason) = comment("<!-- not run: ") {
                    next.not_run = Some(reason.to_owned());
                }
            }
            _ => next.line = number,
        }
        if let Some(language) = line.strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(language) };
        }
    }
    blocks
}

/// The blocks as one script, in one shell, as a reader types them. A failed command ends it.
fn script(blocks: &[&Block]) -> String {
    let failed =
        "code=$?; starling down --quiet 2>down.txt || true; echo \"block of line $at\" >&2";
    let mut script = format!("set -e\ntrap '{failed}; exit $code' EXIT\n");
    for Block { line, given, text, .. } in blocks {
        script.push_str(&format!("at={line}\n{given}\n{text}"));
    }
    script
}

/// Runs all blocks of the pages, and prints how many.
#[expect(clippy::print_stdout, reason = "the number of blocks that are left out is seen")]
fn pages(names: &[&str]) {
    for name in names {
        let text = fs::read_to_string(repository().join(name)).expect("the page is there");
        let sandbox = Sandbox::new();
        if *name == "README.md" {
            let from = repository().join("examples");
            let copy = Command::new("cp").arg("-r").arg(from).arg(sandbox.path("")).status();
            assert!(copy.expect("cp starts").success(), "examples were not copied");
        }
        let blocks = blocks(&text);
        let (left_out, run_here): (Vec<_>, Vec<_>) =
            blocks.iter().partition(|block| block.not_run.is_some());
        assert!(!run_here.is_empty(), "{name} has no block to run");
        let folder = binary().parent().expect("the program lies in a folder").display();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("bash");
        command.args(["-c", &script(&run_here)]).env("PATH", path);
        command.env("HOME", sandbox.path(""));
        let ran = sandbox.start_command(command).end();
        assert_eq!(ran.code, 0, "{name}:\n{}\n{}", ran.stdout, ran.stderr);
        println!("{name}: {} blocks run, {} not run", run_here.len(), left_out.len());
    }
}

#[test]
fn commands_of_the_readme_run() {
    pages(&["README.md"]);
}

#[test]
fn commands_of_tutorials_run() {
    pages(&["docs/tutorials/first-run.md", "docs/tutorials/read-a-report.md"]);
}

#[test]
fn commands_of_the_first_cluster_run() {
    pages(&["docs/tutorials/first-cluster.md", "docs/tutorials/first-slurm-job.md"]);
}

#[test]
fn commands_of_how_to_pages_run() {
    pages(&[
        "docs/how-to/arrays-and-lists.md",
        "docs/how-to/files-between-tasks.md",
        "docs/how-to/containers.md",
        "docs/how-to/prometheus.md",
    ]);
}

#[test]
fn commands_of_large_and_failing_jobs_run() {
    pages(&[
        "docs/how-to/a-million-tasks.md",
        "docs/how-to/retry-failures.md",
        "docs/how-to/long-tasks-that-move.md",
        "docs/how-to/watch-over-ssh.md",
    ]);
}

#[test]
fn commands_for_users_of_other_tools_run() {
    pages(&[
        "docs/from/gnu-parallel.md",
        "docs/from/slurm-arrays.md",
        "docs/from/hyperqueue.md",
        "docs/from/snakemake.md",
    ]);
}

/// A new page of these folders is run by a test above.
#[test]
fn each_page_with_commands_is_run() {
    let this = include_str!("book.rs");
    for folder in ["docs/tutorials", "docs/how-to", "docs/from"] {
        for file in files_below(&repository().join(folder)) {
            let name = file.strip_prefix(repository()).expect("it is below").display().to_string();
            assert!(this.contains(&format!("\"{name}\"")), "{name} is run by no test");
        }
    }
}

/// A task runs in a directory of its own, so the shell finds a script by its whole path alone.
#[test]
fn printed_commands_name_scripts_by_whole_paths() {
    for file in ["docs", "examples"].iter().flat_map(|it| files_below(&repository().join(it))) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        for line in text.lines().filter(|line| line.contains("starling submit")) {
            let script = line.split_once(" -- sh ").map_or("", |(_, script)| script);
            let is_relative = script.starts_with(|it: char| it.is_alphanumeric() || it == '.');
            assert!(!is_relative, "{}: no task finds the script: {line}", file.display());
        }
    }
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => assert!(plain.pop(), "{} leaves the site", path.display()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// Links of a page outside of its blocks: the file and the anchor.
fn links(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (number, part) in text.split("\n```").enumerate() {
        if number % 2 == 1 {
            continue;
        }
        for rest in part.split("](").skip(1) {
            let link = rest.split_once(')').map_or("", |(link, _)| link);
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            if !link.contains("://") {
                found.push((file.to_owned(), anchor.to_owned()));
            }
        }
    }
    found
}

/// The anchors that mdBook gives to the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let id = |line: &str| {
        let line = line.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
        line.chars().filter(|&c| kept(c)).collect::<String>().replace(' ', "-")
    };
    headings.map(id).collect()
}

#[test]
fn each_link_leads_to_a_page_of_the_site() {
    let docs = repository().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("the summary is there");
    let listed: BTreeSet<PathBuf> =
        links(&summary).iter().map(|(file, _)| PathBuf::from(file)).collect();
    let read = |page: &PathBuf| {
        let text = fs::read_to_string(docs.join(page));
        (page.clone(), text.unwrap_or_else(|error| panic!("{}: {error}", page.display())))
    };
    let texts: HashMap<PathBuf, String> = listed.iter().map(read).collect();
    for (page, text) in &texts {
        for (file, anchor) in links(text) {
            let folder = page.parent().expect("a page lies in a folder");
            let target = if file.is_empty() { page.clone() } else { plain(&folder.join(&file)) };
            let from = page.display();
            if target.extension().is_some_and(|ending| ending != "md") {
                assert!(docs.join(&target).exists(), "{from}: {file} is not part of the site");
                continue;
            }
            let there = texts.get(&target);
            let there = there.unwrap_or_else(|| panic!("{from}: {file} is not in the summary"));
            let is_there = anchor.is_empty() || anchors(there).contains(&anchor);
            assert!(is_there, "{from}: {file} has no heading {anchor}");
        }
    }
    for file in files_below(&docs).iter().filter(|file| file.extension() == Some("md".as_ref())) {
        let page = file.strip_prefix(&docs).expect("it is below");
        let is_there = listed.contains(page) || page == Path::new("SUMMARY.md");
        assert!(is_there, "{} is not in the summary", page.display());
    }
}

/// A warning of mdBook fails the script.
#[test]
fn the_site_builds_where_mdbook_is_installed() {
    let sandbox = Sandbox::new();
    let ran = sandbox.start_command(Command::new(repository().join("scripts/book"))).end();
    if ran.code == 3 {
        return skip(ran.stderr.trim());
    }
    assert!(ran.ok().stdout.contains("index.html"), "the script names the site");
    assert!(repository().join("target/book/introduction.html").exists(), "the site is there");
}

#[test]
fn the_reference_is_that_of_the_program() {
    let page = repository().join("docs/reference/commands.md");
    let said = Sandbox::new().starling(&["man", "--markdown"]).ok().stdout;
    if std::env::var_os("STARLING_BLESS").is_some() {
        fs::write(&page, &said).expect("the page is written");
    }
    let committed = fs::read_to_string(&page).expect("the page is there");
    assert!(
        said == committed,
        "docs/reference/commands.md differs from the program; STARLING_BLESS=1 writes it"
    );
    assert!(said.contains("\n## starling job list\n"), "{said}");
}

/// What of JSON Schema the published schemas use: `type`, `const`, `required`, `properties`,
/// `items`. The first difference from the schema, if there is one.
fn difference(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{at}: unknown type {other}"),
    };
    let fits = match &schema["type"] {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        _ => true,
    };
    if !fits {
        return Some(format!("{at}: {value} is no {}", schema["type"]));
    }
    if let Some(expected) = schema.get("const").filter(|expected| *expected != value) {
        return Some(format!("{at}: {value} is not {expected}"));
    }
    if let Some(items) = value.as_array() {
        let each = |(number, item)| difference(&schema["items"], item, &format!("{at}[{number}]"));
        return items.iter().enumerate().find_map(each);
    }
    let object = value.as_object()?;
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(missing) = required.into_iter().find(|key| !object.contains_key(*key)) {
        return Some(format!("{at}: no {missing}"));
    }
    object.iter().find_map(|(key, value)| {
        difference(&schema["properties"][key], value, &format!("{at}.{key}"))
    })
}

fn schema(name: &str) -> Value {
    let path = repository().join("docs/schemas").join(name).with_extension("json");
    let text = fs::read_to_string(&path).expect("the schema is there");
    serde_json::from_str(&text).expect("a schema is JSON")
}

/// Each line of an output fits the schema, and each schema refuses an output without a key.
fn expect_fit(name: &str, output: &str) {
    let schema = schema(name);
    assert!(!output.trim().is_empty(), "{name}: no output");
    for line in output.lines() {
        let value: Value = serde_json::from_str(line).expect("a line is JSON");
        assert_eq!(difference(&schema, &value, name), None, "{value}");
        let mut cut = value.clone();
        cut.as_object_mut().expect("an object").remove("schema");
        assert!(difference(&schema, &cut, name).is_some(), "{name} accepts a missing key");
        cut["schema"] = "1".into();
        assert!(difference(&schema, &cut, name).is_some(), "{name} accepts a wrong type");
    }
}

#[test]
fn outputs_fit_the_published_schemas() {
    let instance = Instance::up(2, 1);
    let fit = |name: &str, words: &[&str]| expect_fit(name, &instance.starling(words).ok().stdout);
    instance.starling(&["submit", "--array", "1-3", "--wait", "--", "true"]).ok();
    let failing = ["submit", "--array", "1-2", "--wait", "--", "sh", "-c", "echo x >&2; exit {i}"];
    instance.starling(&failing).expect_code(1);
    instance.starling(&["submit", "--array", "1-4", "--", "sleep", "600"]).ok();
    for job in ["1", "2", "3"] {
        fit("job-info", &["job", "info", job, "--json"]);
        fit("task-list", &["task", "list", job, "--json"]);
        fit("task-info", &["task", "info", job, "--json"]);
        fit("report", &["report", job, "--json"]);
    }
    fit("job-list", &["job", "list", "--json"]);
    fit("node-list", &["node", "list", "--json"]);
    instance.starling(&["job", "cancel", "3"]).ok();
    instance.starling(&["job", "wait", "3"]);
    fit("job-info", &["job", "info", "3", "--json"]);
    fit("task-list", &["task", "list", "3", "--json"]);
    let run = ["run", "fan-in:tasks=11,degree=10,duration=1ms,output=2kB", "--json"];
    expect_fit("run", &Sandbox::new().starling(&run).ok().stdout);
    let bag = ["run", "bag:tasks=2,duration=1ms", "--nodes", "2", "--json"];
    expect_fit("run", &Sandbox::new().starling(&bag).ok().stdout);
    instance.down();
}
