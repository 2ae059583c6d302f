/*!
Tasks as Rust functions. The program that submits calls is also the worker that runs them.

```no_run
use starling_task::{Cx, Result, task};

#[task]
fn fib(cx: &mut Cx, n: u64) -> Result<u64> {
    if n < 2 {
        return Ok(n);
    }
    let one = cx.spawn(fib(n - 1))?;
    let two = cx.spawn(fib(n - 2))?;
    // The call has no slot while it waits.
    cx.then(add(one, two))
}

#[task]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

fn main() -> std::process::ExitCode {
    starling_task::main(|cluster| {
        let one = cluster.submit(fib(10))?;
        // A result of one call is an argument of another. It does not pass through here.
        let sum = cluster.submit(add(&one, 1))?;
        println!("{}", sum.get()?);
        Ok::<_, starling_task::Error>(())
    })
}
```

A node starts the program again as a worker, so it must lie under the same path on all nodes.
[`main`] connects to the cluster of `STARLING_DIR` or of the default directory, or starts a local
one.

The attribute [`task`] makes a function a *task*: a call of it returns a [`Call`], which
[`Cluster::submit`] and [`Cx::spawn`] take. Each argument is a value, or a call that will have it:
a [`Pending`] or a [`Child`]; for a `Vec`, a list of them as well. Arguments and values are
[serde](https://serde.rs) types that JSON holds exactly.

A task may have `cx: &mut Cx` as its first parameter. If its return type is written as a `Result`,
an error fails the call with its text. A panic fails the call with its message and its place.
*/

#![warn(missing_docs)]

extern crate self as starling_task;

/// The programs of the page compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/rust-functions.md")]
mod page {}

mod call;
mod child;
mod cluster;
mod cx;
mod error;
mod exact;
mod json;
mod local;
mod pending;
mod program;
mod turns;
mod variable;
mod worker;

pub use call::{Arg, Call};
pub use child::Child;
pub use client::Variable;
pub use cluster::{Cluster, ClusterOptions};
pub use cx::{Cx, Want};
pub use error::{Error, Result};
pub use pending::Pending;
pub use program::{is_worker, main, main_with, serve};
pub use task_macros::task;
pub use variable::Var;

/// What the code of the attribute uses.
#[doc(hidden)]
pub mod __private {
    use std::fmt::Display;

    pub use inventory;
    use serde::Serialize;

    pub use crate::call::{Arguments, Entry, Failure, Given, Outcome, Registered};
    use crate::json;

    /// A result, whatever its names.
    #[diagnostic::on_unimplemented(message = "a task returns a `Result` of the standard library")]
    pub trait Fallible {
        type Value;
        type Error;
        fn into_result(self) -> Result<Self::Value, Self::Error>;
    }

    impl<T, E> Fallible for Result<T, E> {
        type Value = T;
        type Error = E;
        fn into_result(self) -> Self {
            self
        }
    }

    pub fn finish<T: Serialize>(value: T) -> Outcome {
        json::encode(&value).map_err(|text| Failure::Returned(format!("its value: {text}")))
    }

    pub fn finish_result<R>(result: R) -> Outcome
    where
        R: Fallible<Value: Serialize, Error: Display>,
    {
        match result.into_result() {
            Ok(value) => finish(value),
            Err(error) => Err(Failure::Returned(error.to_string())),
        }
    }
}
