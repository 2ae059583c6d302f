/*!
A long call that commits its progress: another attempt of it goes on there.

The call adds the terms of a series for pi, and commits its sum after each part. To show what an
attempt begins with, the first one panics in the middle. The second one begins with the last
commit, as it would after the loss of a node.

```sh
cargo run -p starling-task --example series -- 10
```
*/

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use starling_task::{Cluster, Cx, Result, task};

/// The terms of one part.
const TERMS: u64 = 1_000_000;

/// What the call knows after some parts.
#[derive(Serialize, Deserialize, Default)]
struct Progress {
    sum: f64,
    parts: u64,
    /// The part at which each attempt has begun.
    begins: Vec<u64>,
}

/// Adds the terms of one part (Leibniz).
fn add_part(sum: f64, part: u64) -> f64 {
    let terms = part * TERMS..(part + 1) * TERMS;
    let term = |k: u64| if k.is_multiple_of(2) { 4.0 } else { -4.0 } / (2 * k + 1) as f64;
    terms.map(term).fold(sum, |sum, term| sum + term)
}

/// Returns the sum of all parts, and the part at which each attempt has begun.
#[task]
fn series(cx: &mut Cx, parts: u64) -> Result<(f64, Vec<u64>)> {
    let mut progress: Progress = cx.committed()?.unwrap_or_default();
    progress.begins.push(progress.parts);
    while progress.parts < parts {
        progress.sum = add_part(progress.sum, progress.parts);
        progress.parts += 1;
        cx.commit(&progress)?;
        let is_first = progress.begins.len() == 1;
        assert!(!is_first || progress.parts != parts / 2, "the first attempt ends here");
    }
    Ok((progress.sum, progress.begins))
}

fn main() -> ExitCode {
    starling_task::main(|cluster| {
        let parts = std::env::args().nth(1).map_or(Ok(10), |text| text.parse());
        run(cluster, parts?, &mut std::io::stdout())
    })
}

/// Adds this number of parts, and writes the sum to `out`.
pub(crate) fn run(
    cluster: &Cluster,
    parts: u64,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let (sum, begins) = cluster.run(series(parts).retries(1))?;
    writeln!(out, "pi is {sum:.6}")?;
    Ok(writeln!(out, "the attempts began at parts {begins:?} of {parts}")?)
}
