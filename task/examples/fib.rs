/*!
Calls that make calls: a Fibonacci number by recursion.

Each call spawns two, and gives its slot back while it waits for their sum.

```sh
cargo run -p starling-task --example fib -- 10
```

It uses the cluster of `STARLING_DIR` or of the default directory, or starts a local one.
*/

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use starling_task::{Cluster, Cx, Result, task};

#[task]
fn fib(cx: &mut Cx, n: u64) -> Result<u64> {
    if n < 2 {
        return Ok(n);
    }
    let one = cx.spawn(fib(n - 1))?;
    let two = cx.spawn(fib(n - 2))?;
    // It takes both values from where they are.
    cx.then(add(one, two))
}

#[task]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

fn main() -> ExitCode {
    starling_task::main(|cluster| {
        let n = std::env::args().nth(1).map_or(Ok(10), |text| text.parse());
        run(cluster, n?, &mut std::io::stdout())
    })
}

/// Writes the number to `out`.
pub(crate) fn run(cluster: &Cluster, n: u64, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let value = cluster.run(fib(n))?;
    Ok(writeln!(out, "fib({n}) = {value}")?)
}
