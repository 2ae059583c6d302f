//! Runs every check, then every test. All run even if an early one fails, and the last line counts
//! them together. With arguments it runs only those tests: they are the arguments of `cargo test`.
//!
//! The tests of `system` run real processes by real clocks, and a machine may stand still for
//! seconds. If few of them fail, each runs once more, alone. One that passes then is printed with
//! its first output, and counts as passed.
//!
//! *Quick* is for the time between two edits: checks that need no build, unit tests of the crates
//! that changed, and some seeds of the two simulators of the scheduler.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// The names of failed checks and tests, repeated at the end.
    broken: Vec<String>,
    in_failures: bool,
    /// Tests that failed among others, and passed alone.
    unsteady: Vec<String>,
    /// The output of failed tests, also repeated.
    reasons: Vec<String>,
}

const REASON_LINES_MAX: usize = 500;

/// More failed tests than these are no accident: none of them runs again.
const AGAIN_MAX: usize = 3;

/// The numbers of seeds of a quick run: small enough for some seconds each.
const QUICK_SEEDS: [(&str, &str, &str, &str); 2] = [
    ("starling-sim", "seeds", "no_seed_fails", "SIM_SEEDS"),
    ("starling-scheduler", "takeover", "", "TAKEOVER_SEEDS"),
];

/// All that `cargo test` compiles.
const ALL: [&str; 4] = ["--lib", "--bins", "--tests", "--examples"];

/// A package has the name of its folder with this prefix, except `xtask`.
pub(crate) const PREFIX: &str = "starling-";

pub(crate) fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let mut tally = Tally::default();
    if arguments.is_empty() {
        tally.checks(root);
    }
    // The tests with real processes need the binary. It is built once here, with the tests, so that
    // no crate is compiled with two sets of features.
    tally.command("build", cargo(root, &[&["build", "--quiet", "--workspace"], &ALL[..]].concat()));
    let binary = target_directory(root).join("debug/starling");
    let mut test = cargo(root, &test_arguments(arguments));
    test.env("STARLING_TEST_BINARY", &binary);
    tally.tests(test);
    if arguments.is_empty() {
        tally.again(root, &binary);
    }
    if arguments.is_empty() {
        // It prints the reason where it is skipped.
        let mut python = Command::new(root.join("scripts/test-python"));
        python.env("STARLING_TEST_BINARY", &binary).stdin(Stdio::null());
        tally.command("python", python);
    }
    tally.end()
}

pub(crate) fn quick(root: &Path, crates: &[String]) -> ExitCode {
    let mut tally = Tally::default();
    tally.findings("tidy", || crate::tidy::check(root));
    tally.findings("purity", || crate::purity::check(root));
    tally.command("fmt", cargo(root, &["fmt", "--all", "--check"]));
    tally.built_files(root);
    let chosen = || crates.iter().map(|name| package(name)).collect();
    let changed = if crates.is_empty() { changed_crates(root) } else { chosen() };
    for name in &changed {
        let mut command = cargo(root, &["test", "--quiet", "--bins", "--package", name]);
        // Cargo refuses `--lib` for a package without a library.
        if root.join(folder(name)).join("src/lib.rs").is_file() {
            command.arg("--lib");
        }
        tally.tests(command);
    }
    for (package, test, filter, seeds) in QUICK_SEEDS {
        let mut command = cargo(root, &["test", "--quiet", "-p", package, "--test", test, filter]);
        command.env(seeds, "100");
        tally.tests(command);
    }
    tally.end()
}

/// The members of the workspace with changes that are not committed. If git cannot tell: all.
fn changed_crates(root: &Path) -> Vec<String> {
    let is_member = |folder: &str| root.join(folder).join("src").is_dir();
    let mut command = Command::new("git");
    command.args(["status", "--porcelain", "--no-renames"]).current_dir(root);
    if let Ok(output) = command.output()
        && output.status.success()
    {
        return changed_packages(&String::from_utf8_lossy(&output.stdout), is_member);
    }
    println!("ci: git status failed: the unit tests of all crates run");
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    packages(names.iter().map(String::as_str).filter(|name| is_member(name)))
}

/// The packages in a text of `git status --porcelain`. `is_member`: whether a folder is one.
fn changed_packages(listed: &str, is_member: impl Fn(&str) -> bool) -> Vec<String> {
    // A path with special characters is in quotes.
    let paths = listed.lines().filter_map(|line| line.get(3..));
    let folders = paths.filter_map(|path| path.trim_start_matches('"').split('/').next());
    packages(folders.filter(|folder| is_member(folder)))
}

/// The packages of folders, sorted, each once.
fn packages<'f>(folders: impl Iterator<Item = &'f str>) -> Vec<String> {
    let mut packages: Vec<String> = folders.map(package).collect();
    packages.sort();
    packages.dedup();
    packages
}

/// The package of a folder, or of a name that is one already.
pub(crate) fn package(folder: &str) -> String {
    if folder == "xtask" || folder.starts_with(PREFIX) {
        folder.to_owned()
    } else {
        format!("{PREFIX}{folder}")
    }
}

/// The folder of a package.
fn folder(package: &str) -> &str {
    package.strip_prefix(PREFIX).unwrap_or(package)
}

/// All packages, unless the arguments choose some. What follows `--` goes to the test programs.
fn test_arguments(arguments: &[String]) -> Vec<&str> {
    let chooses = |argument: &&str| {
        let flag = argument.split('=').next().unwrap_or_default();
        matches!(flag, "-p" | "--package" | "--workspace" | "--manifest-path")
    };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (mut cargos, tests) = match arguments.iter().position(|&argument| argument == "--") {
        Some(at) => (arguments[..at].to_vec(), arguments[at + 1..].to_vec()),
        None => (arguments, Vec::new()),
    };
    if !cargos.iter().any(chooses) {
        cargos.insert(0, "--workspace");
    }
    [vec!["test", "--no-fail-fast"], cargos, vec!["--", "--show-output"], tests].concat()
}

impl Tally {
    /// The checks that run no test.
    fn checks(&mut self, root: &Path) {
        self.findings("tidy", || crate::tidy::check(root));
        self.findings("purity", || crate::purity::check(root));
        self.command("fmt", cargo(root, &["fmt", "--all", "--check"]));
        let lint = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
        self.command("clippy", cargo(root, &lint));
        // Without the benchmarks and the laboratory.
        let lean = ["clippy", "--quiet", "-p", &package("cli"), "--no-default-features"];
        let only = ["--bin", "starling", "--", "-D", "warnings"];
        self.command("lean", cargo(root, &[&lean[..], &only].concat()));
        let mut doc = cargo(
            root,
            &["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"],
        );
        doc.env("RUSTDOCFLAGS", "-D warnings");
        self.command("doc", doc);
        self.built_files(root);
        self.dependencies(root);
    }

    /// The built files that are committed are those of the sources.
    fn built_files(&mut self, root: &Path) {
        // It prints the reason where it is skipped.
        let mut page = Command::new(root.join("scripts/build-page"));
        page.arg("--check").stdin(Stdio::null());
        self.command("page", page);
        self.worker(root);
    }

    /// The packed Python worker is that of the sources, where `python3` is installed.
    fn worker(&mut self, root: &Path) {
        let mut check = Command::new("python3");
        check.args(["python/pack_worker.py", "--check"]).current_dir(root).stdin(Stdio::null());
        if Command::new("python3").arg("--version").output().is_ok() {
            self.command("worker", check);
        } else {
            println!("ci: worker skipped: python3 is not installed");
        }
    }

    /// Licences, sources and duplicates of all dependencies, where `cargo-deny` is installed.
    fn dependencies(&mut self, root: &Path) {
        let installed = cargo(root, &["deny", "--version"]).output();
        if installed.is_ok_and(|output| output.status.success()) {
            let checks = ["deny", "--offline", "check", "licenses", "bans", "sources"];
            self.command("deny", cargo(root, &checks));
        } else {
            println!("ci: deny skipped: cargo-deny is not installed");
        }
    }

    /// Prints the failures and, last, the totals.
    fn end(&self) -> ExitCode {
        println!();
        self.reasons.iter().for_each(|line| println!("{line}"));
        for name in &self.broken {
            println!("failed: {name}");
        }
        for name in &self.unsteady {
            println!("failed among others, passed alone: {name}");
        }
        if self.ignored > 0 {
            println!("{} ignored", self.ignored);
        }
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    // The outer cargo set these; a nested cargo must find its own.
    command.env_remove("CARGO_MANIFEST_DIR").env_remove("RUST_BACKTRACE");
    command
}

fn target_directory(root: &Path) -> std::path::PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root.join(directory),
        None => root.join("target"),
    }
}

impl Tally {
    fn record(&mut self, name: &str, good: bool, since: Instant) {
        let seconds = since.elapsed().as_secs_f64();
        println!("ci: {name} {} in {seconds:.1} s", if good { "ok" } else { "FAILED" });
        if good {
            self.passed += 1;
        } else {
            self.failed += 1;
            self.broken.push(name.to_owned());
        }
    }

    fn findings(&mut self, name: &str, check: impl FnOnce() -> crate::Findings) {
        let since = Instant::now();
        let findings = check();
        for finding in &findings {
            println!("{name}: {finding}");
        }
        self.record(name, findings.is_empty(), since);
    }

    fn command(&mut self, name: &str, mut command: Command) {
        let since = Instant::now();
        let good = command.status().is_ok_and(|status| status.success());
        self.record(name, good, since);
    }

    /// Runs `cargo test`, prints its lines, and adds up the results of all test binaries.
    fn tests(&mut self, mut command: Command) {
        let since = Instant::now();
        let Ok(mut child) = command.stdout(Stdio::piped()).spawn() else {
            self.record("cargo test", false, since);
            return;
        };
        let failed_before = self.failed;
        let output = child.stdout.take().expect("stdout is piped");
        // Prints the output of passed tests (reasons of skipped ones, statistics of the simulator),
        // but not the second list of their names.
        let mut in_names = false;
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            in_names = line == "successes:" || in_names && line.starts_with("    ");
            if !in_names {
                println!("{line}");
            }
            self.test_line(&line);
        }
        let _ = std::io::stdout().flush();
        let good = child.wait().is_ok_and(|status| status.success());
        // A binary that did not compile, or crashed, reports no result.
        if !good && self.failed == failed_before {
            self.record("cargo test", false, since);
        } else {
            println!("ci: cargo test ended in {:.1} s", since.elapsed().as_secs_f64());
        }
    }

    /// Runs failed tests with real processes once more, alone.
    fn again(&mut self, root: &Path, binary: &Path) {
        let names = tests_to_repeat(&self.broken);
        for name in names {
            let arguments = ["test", "--workspace", "--test", "system", "--", "--exact", &name];
            let mut command = cargo(root, &arguments);
            command.env("STARLING_TEST_BINARY", binary);
            let Ok(output) = command.output() else { continue };
            let mut second = Self::default();
            String::from_utf8_lossy(&output.stdout).lines().for_each(|line| second.test_line(line));
            if (second.passed, second.failed) == (1, 0) {
                self.passed_alone(name);
            }
        }
    }

    fn passed_alone(&mut self, name: String) {
        self.failed -= 1;
        self.passed += 1;
        self.broken.retain(|broken| *broken != name);
        self.unsteady.push(name);
    }

    fn test_line(&mut self, line: &str) {
        self.in_failures |= line == "failures:";
        self.in_failures &= !line.starts_with("test result: ");
        if self.in_failures && self.reasons.len() < REASON_LINES_MAX {
            self.reasons.push(line.to_owned());
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            self.ignored += count(counts, "ignored");
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED"))
        {
            self.broken.push(name.to_owned());
        }
    }
}

/// The failed tests that may run once more: none if there are too many. Checks have no module, and
/// unit tests are in modules `tests`.
fn tests_to_repeat(broken: &[String]) -> Vec<String> {
    let is_test = |name: &&String| name.contains("::") && !name.split("::").any(|it| it == "tests");
    let names: Vec<String> = broken.iter().filter(is_test).cloned().collect();
    if names.len() <= AGAIN_MAX { names } else { Vec::new() }
}

/// The number before `word` in `ok. 3 passed; 0 failed; ...`, or 0 without the word.
fn count(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text.split([' ', ';', '.']).filter(|part| !part.is_empty()).collect();
    let at = words.windows(2).find(|pair| pair[1] == word);
    at.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_choose_the_tests() {
        let of = |text: &str| {
            let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            test_arguments(&arguments).join(" ")
        };
        assert_eq!(of(""), "test --no-fail-fast --workspace -- --show-output");
        assert_eq!(
            of("-p starling-sim seeds"),
            "test --no-fail-fast -p starling-sim seeds -- --show-output"
        );
        assert_eq!(
            of("recall -- --ignored"),
            "test --no-fail-fast --workspace recall -- --show-output --ignored"
        );
    }

    #[test]
    fn changed_files_choose_packages() {
        let listed = " M sim/src/lib.rs\nD  sim/Cargo.toml\n?? tests/src/new.rs\n?? cli/\n \
            M docs/kv.md\n M Cargo.toml\n M \"kvs/caf\\303\\251\"\n";
        let is_member = |name: &str| ["cli", "kvs", "lens", "sim", "tests"].contains(&name);
        let changed = changed_packages(listed, is_member);
        assert_eq!(changed, ["starling-cli", "starling-kvs", "starling-sim", "starling-tests"]);
        assert!(changed_packages("", is_member).is_empty());
        assert_eq!((folder("starling-tests"), folder("sim")), ("tests", "sim"));
    }

    #[test]
    fn few_failed_tests_of_real_processes_run_again() {
        let named = |names: &[&str]| names.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        let broken = named(&["clippy", "kv::cas", "home::tests::a_start", "moves::a_drain"]);
        assert_eq!(tests_to_repeat(&broken), ["kv::cas", "moves::a_drain"]);
        assert!(tests_to_repeat(&named(&["a::b", "a::c", "a::d", "a::e"])).is_empty());
        let mut tally = Tally { passed: 7, failed: 4, broken, ..Tally::default() };
        tally.passed_alone("kv::cas".to_owned());
        assert_eq!((tally.passed, tally.failed, tally.broken.len()), (8, 3, 3));
        assert_eq!(tally.unsteady, ["kv::cas"]);
    }

    #[test]
    fn results_of_all_binaries_add_up() {
        let mut tally = Tally::default();
        tally.test_line(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out",
        );
        tally.test_line("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured");
        tally.test_line("test kv::cas ... FAILED");
        tally.test_line("test kv::insert ... ok");
        for line in ["failures:", "---- kv::cas stdout ----", "wrong", "test result: FAILED.", ""] {
            tally.test_line(line);
        }
        assert_eq!((tally.passed, tally.failed, tally.ignored), (15, 2, 1));
        assert_eq!(tally.broken, ["kv::cas"]);
        assert_eq!(tally.reasons, ["failures:", "---- kv::cas stdout ----", "wrong"]);
    }
}
