/*!
Chores of the repository, as one small program with no dependencies.

- `cargo run -p xtask -- ci` runs every check and every test; its last line is `N passed, N failed`.
- `cargo run -p xtask -- tidy` checks what no compiler checks: sizes, columns, left-over words.
- `cargo run -p xtask -- purity` checks the arrows between the rooms against a table.
- `cargo run -p xtask -- make-mosaic` writes the example workflow `examples/mosaic.json` anew.

It never changes the tree, except for `make-mosaic`.
*/
#![expect(clippy::print_stdout, reason = "its output is what it is for")]
#![expect(clippy::print_stderr, reason = "its output is what it is for")]

mod ci;
mod mosaic;
mod purity;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

/// What a check found wrong, one line each; empty is good.
type Findings = Vec<String>;

fn main() -> ExitCode {
    let verb = std::env::args().nth(1).unwrap_or_default();
    let root = root();
    let findings = match verb.as_str() {
        "ci" => return ci::run(&root),
        "tidy" => tidy::check(&root),
        "purity" => purity::check(&root),
        "make-mosaic" => mosaic::write(&root),
        _ => {
            eprintln!("usage: cargo run -p xtask -- ci | tidy | purity | make-mosaic");
            return ExitCode::from(2);
        }
    };
    for finding in &findings {
        eprintln!("{verb}: {finding}");
    }
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The root of the repository: the folder above this package.
fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
