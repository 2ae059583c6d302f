/*!
Maintenance commands of the repository, as one small program without dependencies.

- `cargo run -p xtask -- ci` runs every check and every test; its last line is `N passed, N
  failed`. Further arguments choose tests, as those of `cargo test`; then no check runs.
- `cargo run -p xtask -- quick [CRATE..]` runs what is fast after an edit: tidy, purity, formatting,
  unit tests of the changed crates, and 100 seeds of each simulator of faults.
- `cargo run -p xtask -- tidy` checks file sizes, columns, left-over words, links and language.
- `cargo run -p xtask -- language` is its last part, with figures and the longest sentences.
- `cargo run -p xtask -- purity` checks the dependencies between crates, and the imports between the
  rooms of `scheduler` and `daemon`, against tables; and that the rooms of six further crates import
  each other in no ring.
- `cargo run -p xtask -- dist` makes the packages of a release, by `scripts/dist`.
- `cargo run -p xtask -- make-mosaic` writes the example workflow `examples/mosaic.json` again.

Only `make-mosaic` changes the tree.
*/
#![expect(clippy::print_stdout, reason = "its output is what it is for")]
#![expect(clippy::print_stderr, reason = "its output is what it is for")]

mod arrows;
mod ci;
mod dist;
mod folders;
mod imports;
mod language;
mod links;
mod mosaic;
mod purity;
mod rings;
mod texts;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

/// The findings of a check, one line each. An empty list is a success.
type Findings = Vec<String>;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let root = root();
    let findings = match verb.as_str() {
        "ci" => return ci::run(&root, &rest),
        "quick" => return ci::quick(&root, &rest),
        "language" => language::report(&root),
        "tidy" => tidy::check(&root),
        "purity" => purity::check(&root),
        "make-mosaic" => mosaic::write(&root),
        "dist" => return dist::run(&root, &rest),
        _ => {
            eprintln!(
                "usage: cargo run -p xtask -- ci | quick | tidy | language | purity | make-mosaic | \
                 dist"
            );
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
