//! placeholder
use starling_task::{Cx, Result, task};

#[task]
fn fib(cx: &mut Cx, n: u64) -> Result<u64> {
    if n < 2 {
        return Ok(n);
    }
    let one = cx.spawn(fib(n - 1))?;
    let two = cx.spawn(fib(n - 2))?;
    cx.then(add(one, two))
}

#[task]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

fn main() -> std::process::ExitCode {
    starling_task::main(|cluster| {
        let n = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10_u64);
        let one = cluster.submit(add(2, 3))?;
        println!("{}", one.get()?);
        let one = cluster.submit(fib(n))?;
        let sum = cluster.submit(add(&one, 1))?;
        println!("{}", sum.get()?);
        Ok::<_, starling_task::Error>(())
    })
}
